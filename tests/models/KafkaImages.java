import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.FeaturesImage;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Replays metadata logs with Kafka's own classes, of the version on the class path.
 *
 * Reads logs from standard input, one a line: framed records in base64, apart by commas; the first sets
 * metadata.version. Prints for each log one line, with an answer for each record, apart by spaces: the records of the
 * image after it, as they were given; or "same", if these are those of the answer before; or "refused", if Kafka
 * raises an exception: the image is then the one before.
 */
public class KafkaImages {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader logs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = logs.readLine(); line != null; line = logs.readLine()) {
            out.println(answers(line.split(",")));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answers(String[] records) throws Exception {
        List<String> answers = new ArrayList<>();
        MetadataImage image = MetadataImage.EMPTY;
        String before = "";
        for (String record : records) {
            ApiMessage message = parsed(Base64.getDecoder().decode(record)).message();
            try {
                MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                delta.replay(message);
                image = delta.apply(MetadataProvenance.EMPTY);
            } catch (RuntimeException refused) {
                answers.add("refused");
                continue;
            }
            String after = written(image);
            answers.add(after.equals(before) ? "same" : after);
            before = after;
        }
        return String.join(" ", answers);
    }

    private static ApiMessageAndVersion parsed(byte[] record) {
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(record)), record.length);
    }

    /** At the newest metadata.version, as others drop what they do not know; with the level of the image. */
    private static String written(MetadataImage image) throws Exception {
        ImageWriterOptions.Builder options =
            new ImageWriterOptions.Builder(image).setMetadataVersion(MetadataVersion.latestTesting());
        try {
            options.getClass().getMethod("setEligibleLeaderReplicasEnabled", boolean.class).invoke(options, true);
        } catch (NoSuchMethodException older) {
            // 3.9 needs no such permission
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, options.build());
        List<String> records = new ArrayList<>();
        for (ApiMessageAndVersion record : writer.records()) {
            if (isMetadataVersion(record.message())) {
                ((FeatureLevelRecord) record.message()).setFeatureLevel(level(image.features()));
            }
            records.add(framed(record));
        }
        return String.join(",", records);
    }

    private static boolean isMetadataVersion(ApiMessage message) {
        return message instanceof FeatureLevelRecord
            && ((FeatureLevelRecord) message).name().equals(MetadataVersion.FEATURE_NAME);
    }

    private static short level(FeaturesImage features) throws Exception {
        Object version = features.getClass().getMethod("metadataVersion").invoke(features);
        if (version instanceof Optional) {
            version = ((Optional<?>) version).get();
        }
        return ((MetadataVersion) version).featureLevel();
    }

    private static String framed(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return Base64.getEncoder().encodeToString(buffer.array());
    }
}
