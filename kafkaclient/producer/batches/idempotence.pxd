cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch


cdef class ProducerIdentity:
    cdef public bint abort_only, enabled
    cdef public Py_ssize_t producer_id, epoch
    cdef public object _forgotten

    cpdef assign(self, Py_ssize_t producer_id, Py_ssize_t epoch)
    cpdef bint raise_epoch(self) except -1
    cpdef batch_failed(self, error)
    cpdef leave_cluster(self)
    cpdef take_up_topic(self)


cdef class TransactionalIdentity(ProducerIdentity):
    cdef public object _fail_transaction
    cdef public bint open

    cpdef bint raise_epoch(self) except -1
    cpdef batch_failed(self, error)


@cython.final
cdef class PartitionSequence:
    cdef public Py_ssize_t producer_id, epoch, next, numbered, last_acked
    cdef public bint unresolved, restart_due

    @cython.locals(ahead=Py_ssize_t)
    cpdef bint may_stamp(self, unacked, ProducerIdentity identity) except -1
    @cython.locals(used=bint)
    cpdef bint is_of(self, ProducerIdentity identity) except -1
    cpdef stamp(self, ProducerBatch batch, ProducerIdentity identity)
    @cython.locals(last=Py_ssize_t)
    cpdef acknowledged(self, ProducerBatch batch)
    cpdef require_restart(self)
    cpdef on_log_recreated(self)
    @cython.locals(batch=ProducerBatch)
    cpdef leave_cluster(self, unacked)
    @cython.locals(expected=Py_ssize_t)
    cpdef resolve(self)
    @cython.locals(batch=ProducerBatch)
    cpdef bint restart(self, unacked, ProducerIdentity identity) except -1


cpdef Py_ssize_t advance(Py_ssize_t sequence, Py_ssize_t count) except? -1
