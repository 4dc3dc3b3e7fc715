cimport cython

from kafkaclient.wire cimport _reader


@cython.locals(reader=_reader.Reader)
cpdef decode_response(int version, payload, names=*)
cdef _partition(_reader.Reader reader, int version, topic)
cdef _unsupported(int version)
