from kafkaclient.producer.batches.partition_queue cimport PartitionQueue

cdef class BatchFactory:
    cdef public object _batch_size, _compression, _elastic_limit, _serials
    cdef public long long _small_batch_bytes
    cdef public bint _transactional
    cpdef long long capacity_for(self, PartitionQueue queue, long long upper_bound, long long room, double now) except? -1
