cimport cython

from kafkaclient.producer.batches.waiters cimport Callback, Waiter, home_loop, wake_soon

cdef object _log
cdef object Context


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
