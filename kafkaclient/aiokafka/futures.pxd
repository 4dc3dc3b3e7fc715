from kafkaclient.producer.batches.delivery_future cimport DeliveryFuture

cdef object _new
cdef object _topic_partition
cdef object _metadata
cdef object _aiokafka_error


cdef class SendFuture(DeliveryFuture):
    cpdef object _translate_result(self, metadata)
    cpdef object _translate_error(self, error)


cdef class UnacknowledgedFuture(SendFuture):
    cpdef object _translate_result(self, metadata)
