cimport cython

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    typedef struct { PyObject_HEAD PyObject *loop; } RunningLoopHolder;
    #endif

    /* Whether the event loop runs in this thread, by what asyncio keeps in the thread's dictionary,
       before Python 3.12 inside of an object of its own. 0: it does not, or asyncio has to be
       asked, which takes a Python call, and before 3.12 a system call. */
    static CYTHON_INLINE int kafkaclient_is_kept_loop(PyObject *loop) {
    #if PY_VERSION_HEX < 0x030E0000 && defined(CYTHON_COMPILING_IN_CPYTHON) && CYTHON_COMPILING_IN_CPYTHON
        static PyObject *key = NULL;
        PyObject *dict, *kept;
        if (key == NULL) key = PyUnicode_InternFromString("__asyncio_running_event_loop__");
        if (key == NULL) { PyErr_Clear(); return 0; }
        dict = PyThreadState_GetDict();
        kept = dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
        if (kept == NULL) { PyErr_Clear(); return 0; }
    #if PY_VERSION_HEX < 0x030C0000
        if (Py_TYPE(kept)->tp_basicsize < (Py_ssize_t)sizeof(RunningLoopHolder)) return 0;
        return ((RunningLoopHolder *)kept)->loop == loop;
    #else
        return kept == loop;
    #endif
    #else
        return 0;
    #endif
    }
    """
    bint is_kept_loop "kafkaclient_is_kept_loop" (object loop)


cdef object ProducerStateError
cdef object _running_loop
cdef object _running_loop_or_none

cpdef bint runs_here(loop) except -1
@cython.locals(running=object)
cpdef object home_loop(loop, bint may_rest)
cpdef object cancelled_error(message)


cdef class Waiter:
    cdef readonly object loop
    cdef object context

    cdef wake(self)


@cython.locals(n=Py_ssize_t, waiter=Waiter)
cpdef wake_all(list waiters)
@cython.locals(first=Waiter)
cpdef wake_soon(list waiters)


@cython.final
cdef class Callback(Waiter):
    cdef readonly tuple _key

    cpdef bint has_callback(self, callback) except -1


@cython.final
cdef class TaskWaiter(Waiter):
    cdef public bint _asyncio_future_blocking
    cdef object _callback
    cdef object _cancel_message
    cdef bint _cancelled
    cdef bint _done

    cpdef bint cancel(self, msg=*)
