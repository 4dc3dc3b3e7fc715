cimport cython

from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.waiters cimport Callback, TaskWaiter

cdef extern from *:
    """
    static CYTHON_INLINE void kafkaclient_untrack(PyObject *object) {
        PyObject_GC_UnTrack(object);
    }
    static CYTHON_INLINE void kafkaclient_track(PyObject *object) {
        if (!PyObject_GC_IsTracked(object)) PyObject_GC_Track(object);
    }
    """
    void _untrack "kafkaclient_untrack" (object delivery)
    void _track "kafkaclient_track" (object delivery)

cdef object _running_loop
cdef object _new_metadata


@cython.final
cdef class Delivery:
    cdef readonly BatchResult _batch_result
    cdef long long _timestamp
    cdef readonly int _index
    cdef unsigned char _unseen
    cdef unsigned char _counted

    cpdef tuple detach(self)
    @cython.locals(batch_result=BatchResult)
    cpdef bint done(self)
    @cython.locals(batch_result=BatchResult)
    cpdef exception(self)
    @cython.locals(
        batch_result=BatchResult,
        index=Py_ssize_t,
        offset=cython.longlong,
        at=cython.longlong,
        timestamp_type=int,
    )
    cpdef result(self)
    @cython.locals(batch_result=BatchResult)
    cpdef add_done_callback(self, callback)
    cpdef int when_settled(self, callback, target, bint awaited=*) except -1
    @cython.locals(batch_result=BatchResult, index=Py_ssize_t, offset=cython.longlong)
    cpdef tuple peek(self)
    @cython.locals(batch_result=BatchResult)
    cpdef remove_done_callback(self, callback)
    @cython.locals(batch_result=BatchResult, held=BatchResult)
    cpdef int move_to(self, Delivery other) except -1


@cython.locals(delivery=Delivery)
cpdef Delivery delivery_for_last(BatchResult batch_result, long long timestamp)
@cython.locals(delivery=Delivery)
cpdef Delivery new_delivery(BatchResult batch_result, long long timestamp)
