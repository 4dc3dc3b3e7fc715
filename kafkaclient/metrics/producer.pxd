cimport cython

cdef class ProducerMetrics:
    cdef public object _clock, _windows, _read_nodes, _read_topics, _read_partitions
    cdef public object _read_exclusions, _group, _batch_size, _compression, _record_size
    cdef public object _queue_time, batch_expired, batch_split, _sent, _errors, _retries
    cdef public object errors_unseen, produce_request, _latency, throttled, _requests
    cdef public object _responses, _opened, _closed, buffer_waited, buffer_exhausted, flushed
    cdef public object metadata_waited, _transactions, event_loop_lagged, _nodes, _topics
    cpdef batch_sent(self, topic, long long records, long long nbytes, double queue_time_s, long long partition, raw_bytes)
    cpdef partition_switched(self, topic)
    cpdef records_failed(self, topic, long long records)
    cpdef records_retried(self, topic, long long records)
    cpdef request_sent(self, long long node_id, long long nbytes)
    cpdef request_done(self, long long node_id, api, long long nbytes, double latency_s, error)
    cpdef connection_opened(self, long long node_id)
    cpdef connection_closed(self, long long node_id)
    cpdef transaction_waited(self, call, double seconds)
    cpdef bind_gauge(self, name, read)
    cpdef bind_gauges(self, nodes, topics, partitions, exclusions)
    cpdef forget_topic(self, topic)
    @cython.locals(partitions=dict)
    cpdef dict _partitions(self)


cdef class _Node:
    cdef public object group, requests, responses, latency


cdef class _Topic:
    cdef public object group, sent, bytes, compression, retries, errors, switches, partitions


cpdef _sorted(values)
