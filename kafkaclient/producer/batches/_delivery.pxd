cimport cython

from kafkaclient.producer.batches._waiters cimport Callback, TaskWaiter, Waiter, home_loop, wake_soon

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

cdef object _log
cdef object _running_loop
cdef object _new_metadata


@cython.final
cdef class BatchResult:
    cdef public str topic
    cdef public long partition
    cdef public long long base_offset
    cdef public long long log_append_time
    cdef public long long log_start_offset
    cdef public Py_ssize_t count
    cdef public bint done
    cdef public object error
    cdef public dict record_errors
    cdef public object on_unseen
    cdef public object loop
    cdef public bint atomic
    cdef public Py_ssize_t live_deliveries
    cdef public object on_delivery
    cdef public list hooked
    cdef public object on_only_record_awaited
    cdef dict _waiters
    cdef tuple _parts
    cdef Py_ssize_t _dropped_from
    cdef Py_ssize_t _dropped_to
    cdef list _dropped

    @cython.locals(delivery=Delivery)
    cpdef Delivery delivery_for_last(self, long long timestamp)
    @cython.locals(delivery=Delivery)
    cpdef Delivery new_delivery(self, long long timestamp)
    cpdef int drop(self, Py_ssize_t index, Py_ssize_t count=*) except -1
    cpdef tuple resolve_index(self, Py_ssize_t index)
    @cython.locals(batch_result=BatchResult, at=Py_ssize_t, run=Py_ssize_t)
    cpdef tuple run_at(self, Py_ssize_t index)
    @cython.locals(batch_result=BatchResult)
    cpdef int when_settled(self, Py_ssize_t index, callback, target, bint awaited=*) except -1
    cpdef int when_done(self, index, Waiter waiter) except -1
    @cython.locals(batch_result=BatchResult)
    cpdef int await_record(self, Py_ssize_t index, Waiter waiter) except -1
    cpdef bint knows(self, waiter)
    cpdef bint forget(self, waiter)
    cpdef list take_waiters(self)
    cpdef error_of(self, index)
    cpdef object home_loop(self)
    @cython.locals(waiters=list)
    cdef int _finish(self) except -1


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
