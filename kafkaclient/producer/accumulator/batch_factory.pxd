cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue

@cython.final
cdef class BatchFactory:
    cdef public long long _batch_size, _small_batch_bytes, _elastic_limit
    cdef public object _compression, _serials
    cdef public bint _transactional
    @cython.locals(capacity=cython.longlong, elastic_limit=cython.longlong, limit=cython.longlong, most=cython.longlong, usual=cython.longlong)
    cpdef long long capacity_for(self, PartitionQueue queue, long long upper_bound, long long room, double now) except? -1
    cpdef ProducerBatch new(self, PartitionQueue queue, BatchResult batch_result, long long limit, long long capacity, double created, bint rebindable=*, serial=*)
