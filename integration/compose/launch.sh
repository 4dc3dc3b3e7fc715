#!/bin/sh
# What the entrypoint of apache/kafka does: settings from the environment, a formatted log
# directory, then the broker as the container's first process.
set -e

kafka='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp /opt/kafka/libs/*'
set -f # the JVM expands the star, not the shell

result=$(java $kafka kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config \
    --final-configs-dir /opt/kafka/config 2>&1) ||
    echo "$result" | grep -i 'already formatted' ||
    { echo "$result"; exit 1; }

exec java $KAFKA_HEAP_OPTS -Dlog4j2.level=INFO $kafka kafka.Kafka /opt/kafka/config/server.properties
