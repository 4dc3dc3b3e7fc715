cimport cython

from kafkaclient.wire.record_buffer cimport RecordBuffer


cdef class BatchBuilder(RecordBuffer):
    cdef bytearray _batch
    cdef int _attributes
    cdef long long _producer_id
    cdef int _producer_epoch
    cdef int _base_sequence
    cdef bint _header_due

    @cython.locals(batch=bytearray)
    cpdef bytearray close(self)
    @cython.locals(codec=int)
    cpdef stamp(
        self,
        long long producer_id,
        int producer_epoch,
        int base_sequence,
        bint transactional=*,
    )
    @cython.locals(batch=bytearray)
    cpdef buffer(self)
