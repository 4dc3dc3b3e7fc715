create table orders (
    id bigint generated always as identity primary key,
    customer text not null,
    item integer not null
);

-- A record that is to be sent. It is written in the transaction of the change that it tells.
create table outbox (
    id bigint generated always as identity primary key,
    topic text not null,
    key bytea,
    value bytea,
    created_at timestamptz not null default now(),
    sent_at timestamptz,
    refused text  -- why it can never be sent
);

create index outbox_waiting on outbox (id) where sent_at is null and refused is null;

-- The notification is delivered when the transaction commits.
create function outbox_notify() returns trigger language plpgsql as $$
begin
    notify outbox;
    return null;
end $$;

create trigger outbox_notify after insert on outbox
    for each statement execute function outbox_notify();
