cimport cython

from kafkaclient.wire.reader cimport Reader


@cython.locals(reader=Reader)
cpdef decode_response(int version, payload, names=*)
cdef _partition(Reader reader, int version, topic)
cdef _unsupported(int version)
