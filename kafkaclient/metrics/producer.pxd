cimport cython

from kafkaclient.metrics.stats cimport Windowed


@cython.final
cdef class ProducerMetrics:
    cdef public object _clock, _windows, gauges
    cdef public object _group, expired_in_queue, batch_split, errors_unseen
    cdef public object produce_request, throttled, buffer_waited, buffer_exhausted, flushed
    cdef public object metadata_waited, event_loop_lagged, _nodes, _topics
    cdef public Windowed _batch_size, _compression, _record_size, _queue_time, _sent, _errors
    cdef public Windowed _retries, _latency, _requests, _responses, _opened, _closed
    cdef public dict _transactions

    @cython.locals(entry=_Topic, now=double)
    cpdef batch_sent(
        self, topic, Py_ssize_t records, Py_ssize_t nbytes, double queue_time_s, Py_ssize_t
        partition, raw_bytes
    )
    cpdef partition_switched(self, topic)
    cpdef records_failed(self, topic, Py_ssize_t records)
    cpdef records_retried(self, topic, Py_ssize_t records)
    cpdef request_sent(self, Py_ssize_t node_id, Py_ssize_t nbytes)
    @cython.locals(node=_Node, now=double)
    cpdef request_done(self, Py_ssize_t node_id, api, Py_ssize_t nbytes, double latency_s, error)
    cpdef connection_opened(self, Py_ssize_t node_id)
    cpdef connection_closed(self, Py_ssize_t node_id)
    cpdef transaction_waited(self, call, double seconds)
    cpdef forget_topic(self, topic)


@cython.final
cdef class _Node:
    cdef public object group
    cdef public Windowed requests, responses, latency


@cython.final
cdef class _Topic:
    cdef public object group, partitions
    cdef public Windowed sent, bytes, compression, retries, errors, switches
