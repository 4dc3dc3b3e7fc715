cimport cython

cdef tuple _BUFFERS


@cython.final
@cython.freelist(8)
cdef class SerializationContext:
    cdef public object topic
    cdef public object field
    cdef public object headers


@cython.final
cdef class Serializers:
    cdef object _key
    cdef object _value
    cdef bint _key_gets_context
    cdef bint _value_gets_context

    cpdef tuple apply(self, topic, value, key, headers)
    cdef _awaited(self, topic, value, key, headers, field)


cdef bint _in_bytes(topic, field, item) except -1
