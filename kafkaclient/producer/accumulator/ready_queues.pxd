cimport cython

from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.accumulator.compressor cimport BatchCompressor
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.idempotence cimport ProducerIdentity
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.wakeup cimport Wakeup


@cython.final
cdef class Linger:
    cdef public double _seconds
    cdef public bint _never_lingers
    cdef public BufferPool _buffer_pool
    cdef public object _flushes

    @cython.locals(seconds=double)
    cpdef double until(self, PartitionQueue queue, double now, bint rebindable) except? -1
    cpdef bint lingers(self, PartitionQueue queue, ProducerBatch head) except -1
    cpdef close(self)


@cython.final
cdef class ReadyQueues:
    cdef public object ready, unbound, blocked, gate, _order
    cdef public dict leaderless
    cdef public bint _one_in_flight
    cdef public ProducerIdentity _identity
    cdef public BatchCompressor _compressor
    cdef public Linger _linger
    cdef public Wakeup _wakeup
    cdef public list _timers

    cpdef schedule(self, PartitionQueue queue, double now, bint had_turn=*)
    @cython.locals(soon=double)
    cpdef _enter_state(self, PartitionQueue queue, ProducerBatch head, double now)
    cpdef _wait(self, PartitionQueue queue, state, double until)
    cpdef _detach(self, PartitionQueue queue)
    @cython.locals(lane=Py_ssize_t, lanes=set, queue=PartitionQueue)
    cpdef set lanes_with_work(self)
    @cython.locals(head=ProducerBatch)
    cpdef bint has_full_head(self, Py_ssize_t lane) except -1
    cpdef ProducerBatch _head(self, Py_ssize_t lane)
    cpdef set_leader(self, PartitionQueue queue, Py_ssize_t leader, Py_ssize_t epoch, double now)
    @cython.locals(head=ProducerBatch)
    cpdef ProducerBatch sendable(self, PartitionQueue queue, double now)
    @cython.locals(queue=PartitionQueue, timers=list, when=double)
    cpdef run_timers(self, double now)
    @cython.locals(timers=list)
    cpdef next_timer(self)
    cpdef bint _may_leave(self, PartitionQueue queue, ProducerBatch head) except -1


cpdef bint _is_current(PartitionQueue queue, double when) except -1
