cimport cython

from kafkaclient.producer.batches cimport _delivery


@cython.final
cdef class BatchShare:
    cdef readonly _delivery.Delivery last
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nbytes

    cpdef int extend(self, _delivery.Delivery delivery, Py_ssize_t nbytes) except -1


@cython.final
cdef class Slice:
    cdef readonly dict runs
    cdef public Py_ssize_t taken

    @cython.locals(at=Py_ssize_t, run=BatchShare, delivery=_delivery.Delivery)
    cpdef hand_over(self, send_nowait, str topic, list records)
