cimport cython

from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.delivery cimport Delivery, _track, _untrack
from kafkaclient.producer.batches.waiters cimport (
    Callback, TaskWaiter, Waiter, cancelled_error, home_loop, wake_all, wake_soon
)

cdef object _log
cdef object _running_loop


cdef class DeliveryFuture(Waiter):
    cdef object __weakref__
    cdef Delivery _delivery
    cdef list _waiters
    cdef object _outcome
    cdef readonly object _cancel_message
    cdef public bint _asyncio_future_blocking
    cdef unsigned char _cancelled
    cdef unsigned char _settled
    cdef unsigned char _failed

    cpdef object _translate_result(self, metadata)
    cpdef object _translate_error(self, error)
    cpdef bint done(self)
    cpdef bint cancelled(self)
    cpdef result(self)
    cpdef exception(self)
    @cython.locals(failed=bint)
    cdef object _settle(self)
    @cython.locals(waiters=list, kept=list)
    cpdef Py_ssize_t remove_done_callback(self, callback) except -1
    @cython.locals(waiters=list)
    cpdef bint cancel(self, msg=*)
    @cython.locals(waiters=list)
    cdef wake(self)
    @cython.locals(batch_result=BatchResult)
    cdef int _add(self, Waiter waiter) except -1
    @cython.locals(batch_result=BatchResult)
    cdef int _set_waiters(self, list waiters) except -1
