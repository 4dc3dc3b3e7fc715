import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/**
 * Writes each push of a client's metrics to a file of the broker's working directory (KIP-714). Its
 * name has the number of the push, the client id, the client instance id and whether it is the last.
 */
public class MetricsReceiver implements MetricsReporter, ClientTelemetry {
    private static final Path FOLDER = Path.of("client-metrics");
    private final AtomicInteger pushes = new AtomicInteger();

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            try {
                write(context.clientId(), payload);
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
        };
    }

    private void write(String clientId, ClientTelemetryPayload payload) throws IOException {
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        var id = payload.clientInstanceId();
        var instance = new java.util.UUID(id.getMostSignificantBits(), id.getLeastSignificantBits());
        Files.createDirectories(FOLDER);
        Path whole = FOLDER.resolve(String.join("+",
                "%06d".formatted(pushes.getAndIncrement()), clientId, instance.toString(),
                payload.isTerminating() ? "last" : "regular"));
        Path part = FOLDER.resolve("." + whole.getFileName());
        Files.write(part, bytes);
        Files.move(part, whole, StandardCopyOption.ATOMIC_MOVE);
    }

    @Override
    public void configure(Map<String, ?> configs) { }

    @Override
    public void init(List<KafkaMetric> metrics) { }

    @Override
    public void metricChange(KafkaMetric metric) { }

    @Override
    public void metricRemoval(KafkaMetric metric) { }

    @Override
    public void close() { }
}
