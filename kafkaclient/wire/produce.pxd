cimport cython

from kafkaclient.wire.reader cimport FieldReader


@cython.locals(reader=FieldReader)
cpdef decode_response(int version, payload, names=*)
cdef _partition(FieldReader reader, int version, topic)
cdef _unsupported(int version)
