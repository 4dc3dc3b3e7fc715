// Kafka Streams' own classes behind standard input and output: a line asks, a line answers. In their
// package, because some of what they can is not public.
package org.apache.kafka.streams.processor.internals.assignment;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.function.Function;
import java.util.stream.Collectors;

import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.state.HostInfo;

// Words are separated by blanks, the elements of lists by commas, of their parts by ; = and /, and
// an empty word is a minus.
public class StreamsReference {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "assign": return assign(words);
                case "lag": return lag(words);
                case "encode-subscription": return encodeSubscription(words);
                case "decode-subscription": return decodeSubscription(words[1]);
                case "encode-assignment": return encodeAssignment(words);
                case "decode-assignment": return decodeAssignment(words[1]);
                default: return "error: unknown command " + words[0];
            }
        } catch (RuntimeException error) {
            return "error: " + error;
        }
    }

    // assign ACCEPTABLE WARMUPS STANDBYS TAGS STATEFUL STATELESS CAPACITY;LAGS;TAGS...
    private static String assign(String[] words) {
        AssignmentConfigs configs = new AssignmentConfigs(
            Long.parseLong(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]), 60000L, list(words[4]));
        List<TaskId> stateful = tasks(words[5]);
        Set<TaskId> all = new TreeSet<>(stateful);
        all.addAll(tasks(words[6]));
        Map<ProcessId, ClientState> clients = new TreeMap<>();
        for (int number = 1; number <= words.length - 7; number++) {
            String[] parts = words[number + 6].split(";");
            List<String> lags = list(parts[1]);
            Map<TaskId, Long> lagOf = new TreeMap<>();
            for (int i = 0; i < stateful.size(); i++) {
                lagOf.put(stateful.get(i), Long.parseLong(lags.get(i)));
            }
            ProcessId id = new ProcessId(new UUID(0, number));
            clients.put(id, new ClientState(
                Set.of(), Set.of(), lagOf, pairs(parts[2], "="), Integer.parseInt(parts[0]), id));
        }
        RackAwareTaskAssignor racks = new RackAwareTaskAssignor(
            Cluster.empty(), Map.of(), Map.of(), Map.of(), Map.of(), null, configs, Time.SYSTEM);
        boolean probing = new HighAvailabilityTaskAssignor().assign(clients, all, new TreeSet<>(stateful), racks, configs);
        return probing + clients.values().stream()
            .map(client -> " " + join(client.activeTasks()) + ";" + join(client.standbyTasks()))
            .collect(Collectors.joining());
    }

    // lag END OFFSETS (a minus: none reported)
    private static String lag(String[] words) {
        TaskId task = new TaskId(0, 0);
        ClientState client = new ClientState(new ProcessId(new UUID(0, 1)), Map.of());
        client.addPreviousTasksAndOffsetSums(
            "consumer", words[2].equals("-") ? Map.of() : Map.of(task, Long.parseLong(words[2])));
        client.computeTaskLags(new ProcessId(new UUID(0, 1)), Map.of(task, Long.parseLong(words[1])));
        return Long.toString(client.lagFor(task));
    }

    // encode-subscription VERSION LATEST PROCESS ENDPOINT TASK=OFFSETS,... UNIQUE ERROR TAG=VALUE,...
    private static String encodeSubscription(String[] words) {
        Map<TaskId, Long> sums = new TreeMap<>();
        pairs(words[5], "=").forEach((task, sum) -> sums.put(TaskId.parse(task), Long.parseLong(sum)));
        return hex(new SubscriptionInfo(
            Integer.parseInt(words[1]), Integer.parseInt(words[2]), new ProcessId(UUID.fromString(words[3])),
            words[4].equals("-") ? null : words[4], sums, Byte.parseByte(words[6]), Integer.parseInt(words[7]),
            pairs(words[8], "=")).encode());
    }

    private static String decodeSubscription(String hex) {
        SubscriptionInfo info = SubscriptionInfo.decode(bytes(hex));
        return String.join(" ",
            "" + info.version(), "" + info.latestSupportedVersion(), info.processId().id().toString(),
            info.userEndPoint() == null ? "-" : info.userEndPoint(), joinMap(info.taskOffsetSums()),
            "" + info.errorCode(), joinMap(info.clientTags()));
    }

    // encode-assignment VERSION COMMON ACTIVE TASK/PARTITION/PARTITION,... HOST:PORT/PARTITION,... (standby) ERROR NEXT
    private static String encodeAssignment(String[] words) {
        Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
        for (String entry : list(words[4])) {
            String[] parts = entry.split("/");
            standby.put(TaskId.parse(parts[0]), partitions(parts));
        }
        AssignmentInfo info = new AssignmentInfo(
            Integer.parseInt(words[1]), Integer.parseInt(words[2]), tasks(words[3]), standby,
            hosts(words[5]), hosts(words[6]), Integer.parseInt(words[7]));
        info.setNextRebalanceTime(Long.parseLong(words[8]));
        return hex(info.encode());
    }

    private static String decodeAssignment(String hex) {
        AssignmentInfo info = AssignmentInfo.decode(bytes(hex));
        return String.join(" ",
            "" + info.version(), "" + info.commonlySupportedVersion(),
            info.activeTasks().isEmpty() ? "-" : info.activeTasks().stream().map(TaskId::toString).collect(Collectors.joining(",")),
            joinPartitions(info.standbyTasks()), joinPartitions(byName(info.partitionsByHost())),
            joinPartitions(byName(info.standbyPartitionByHost())), "" + info.errCode(), "" + info.nextRebalanceMs());
    }

    private static List<String> list(String word) {
        return word.equals("-") ? List.of() : List.of(word.split(","));
    }

    private static List<TaskId> tasks(String word) {
        return list(word).stream().map(TaskId::parse).collect(Collectors.toList());
    }

    private static Map<String, String> pairs(String word, String separator) {
        Map<String, String> found = new LinkedHashMap<>();
        for (String pair : list(word)) {
            String[] parts = pair.split(separator, 2);
            found.put(parts[0], parts[1]);
        }
        return found;
    }

    private static Set<TopicPartition> partitions(String[] parts) {
        Set<TopicPartition> found = new LinkedHashSet<>();
        for (int i = 1; i < parts.length; i++) {
            int dash = parts[i].lastIndexOf('-');
            found.add(new TopicPartition(parts[i].substring(0, dash), Integer.parseInt(parts[i].substring(dash + 1))));
        }
        return found;
    }

    private static Map<HostInfo, Set<TopicPartition>> hosts(String word) {
        Map<HostInfo, Set<TopicPartition>> found = new LinkedHashMap<>();
        for (String entry : list(word)) {
            String[] parts = entry.split("/");
            String[] address = parts[0].split(":");
            found.put(new HostInfo(address[0], Integer.parseInt(address[1])), partitions(parts));
        }
        return found;
    }

    private static Map<String, Set<TopicPartition>> byName(Map<HostInfo, Set<TopicPartition>> hosts) {
        Map<String, Set<TopicPartition>> found = new TreeMap<>();
        hosts.forEach((host, partitions) -> found.put(host.host() + ":" + host.port(), partitions));
        return found;
    }

    private static String join(Collection<TaskId> tasks) {
        return tasks.isEmpty() ? "-" : new TreeSet<>(tasks).stream().map(TaskId::toString).collect(Collectors.joining(","));
    }

    private static String joinMap(Map<?, ?> map) {
        return joinEntries(map, entry -> entry.getKey() + "=" + entry.getValue());
    }

    private static <K> String joinPartitions(Map<K, Set<TopicPartition>> map) {
        return joinEntries(map, entry -> entry.getKey() + entry.getValue().stream()
            .map(TopicPartition::toString).sorted().map(name -> "/" + name).collect(Collectors.joining()));
    }

    private static <K, V> String joinEntries(Map<K, V> map, Function<Map.Entry<K, V>, String> text) {
        List<Map.Entry<K, V>> entries = new ArrayList<>(new TreeMap<>(map).entrySet());
        return entries.isEmpty() ? "-" : entries.stream().map(text).collect(Collectors.joining(","));
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }
}
