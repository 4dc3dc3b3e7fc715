cimport cython

from kafkaclient.producer.batches.delivery cimport Delivery


@cython.final
cdef class BatchShare:
    cdef readonly Delivery last
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nbytes

    cpdef int extend(self, Delivery delivery, Py_ssize_t nbytes) except -1


@cython.final
cdef class Slice:
    cdef readonly dict runs
    cdef public Py_ssize_t taken

    @cython.locals(at=Py_ssize_t, run=BatchShare, delivery=Delivery)
    cpdef hand_over(self, send_nowait, str topic, list records)
