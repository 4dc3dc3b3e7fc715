cimport cython

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


@cython.final
cdef class BatchResult:
    cdef public str topic
    cdef public long partition
    cdef public long long base_offset
    cdef public long long log_append_time
    cdef public Py_ssize_t count
    cdef public bint done
    cdef public object error
    cdef public dict record_errors
    cdef public object on_unseen
    cdef public object loop
    cdef public Py_ssize_t live_deliveries
    cdef public object on_delivery
    cdef public list hooked
    cdef public object awaited
    cdef dict _waiters
    cdef tuple _parts
    cdef Py_ssize_t _dropped_from
    cdef Py_ssize_t _dropped_to
    cdef list _dropped

    @cython.locals(delivery=Delivery)
    cpdef Delivery delivery_for_last(self, long long timestamp)
    cpdef int drop(self, Py_ssize_t index, Py_ssize_t count=*) except -1
    @cython.locals(batch_result=BatchResult, at=Py_ssize_t)
    cpdef tuple resolve_index(self, Py_ssize_t index)
    @cython.locals(batch_result=BatchResult, at=Py_ssize_t, run=Py_ssize_t)
    cpdef tuple run_at(self, Py_ssize_t index)
    cpdef int when_done(self, index, _Waiter waiter) except -1
    @cython.locals(batch_result=BatchResult)
    cpdef int await_record(self, Py_ssize_t index, _Waiter waiter) except -1
    cpdef bint knows(self, waiter)
    cpdef bint forget(self, waiter)
    cpdef list take_waiters(self)
    cpdef error_of(self, index)
    cpdef int check_home(self, loop) except -1
    @cython.locals(waiters=list)
    cdef int _finish(self) except -1


@cython.locals(n=Py_ssize_t, waiter=_Waiter)
cpdef _wake(list waiters)


cdef class _Waiter:
    cdef readonly object loop
    cdef object context

    cdef wake(self)


@cython.final
cdef class Callback(_Waiter):
    cdef readonly tuple _key


@cython.final
cdef class _Awaiting(_Waiter):
    cdef public bint _asyncio_future_blocking
    cdef Delivery _delivery
    cdef object _callback
    cdef bint _cancelled

    @cython.locals(batch_result=BatchResult)
    cpdef bint cancel(self, msg=*)


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
    @cython.locals(batch_result=BatchResult, index=Py_ssize_t, offset=cython.longlong)
    cpdef result(self)
    @cython.locals(batch_result=BatchResult)
    cpdef add_done_callback(self, callback)
    @cython.locals(batch_result=BatchResult)
    cpdef remove_done_callback(self, callback)
    @cython.locals(batch_result=BatchResult, held=BatchResult)
    cpdef int move_to(self, Delivery other) except -1
