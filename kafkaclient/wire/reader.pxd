cimport cython


cdef class FieldReader:
    cdef public object data
    cdef public Py_ssize_t position
    cdef public Py_ssize_t end
    cdef public bint flexible

    cpdef Py_ssize_t advance(self, Py_ssize_t size) except -1
    cpdef take(self, Py_ssize_t size)
    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cpdef unpack(self, layout)
    cpdef int8(self)
    cpdef int16(self)
    cpdef int32(self)
    cpdef int64(self)
    @cython.locals(
        position=cython.Py_ssize_t, value=cython.longlong, byte=cython.longlong, index=cython.int
    )
    cpdef long long uvarint(self) except -1
    cpdef nullable_string(self)
    cpdef string(self)
    @cython.locals(count=cython.longlong)
    cpdef array(self, Py_ssize_t element_size)
    @cython.locals(count=cython.longlong)
    cpdef dict tagged_fields(self)
