"""Message sets as Java's classes of Kafka 3.9 read, write and make them of batches: the last that know them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.kafka_jars import earlier_clients_jar, java_command

SOURCE = """
import java.io.*; import java.nio.ByteBuffer; import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression; import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.Time;

public class MessageSets {
    static String hex(ByteBuffer b) {
        if (b == null) return "-";
        byte[] a = new byte[b.remaining()]; b.duplicate().get(a); return "x" + HexFormat.of().formatHex(a);
    }
    static MemoryRecords of(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }
    public static void main(String[] none) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.split(" ");
            if (w[0].equals("DOWN")) {
                MemoryRecords log = of(w[3]);
                long first = Long.parseLong(w[2]);
                ByteBuffer made = log.downConvert(Byte.parseByte(w[1]), first, Time.SYSTEM).records().buffer();
                System.out.println(hex(made).substring(1));
            } else if (w[0].equals("READ")) {
                StringBuilder out = new StringBuilder();
                for (RecordBatch batch : of(w[1]).batches()) {
                    batch.ensureValid();
                    for (org.apache.kafka.common.record.Record r : batch)
                        out.append(r.offset()).append(':').append(r.timestamp()).append(':').append(hex(r.key()))
                           .append(':').append(hex(r.value())).append(' ');
                }
                System.out.println(out.toString().trim());
            } else {
                byte magic = Byte.parseByte(w[1]);
                Compression packed = Compression.of(CompressionType.forId(Integer.parseInt(w[2]))).build();
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    ByteBuffer.allocate(1 << 16), magic, packed, TimestampType.CREATE_TIME, 0L);
                for (int n = 0; n < Integer.parseInt(w[3]); n++)
                    builder.append(1000L + n, n % 3 == 0 ? null : ("k" + n).getBytes(), ("value " + n).getBytes());
                System.out.println(hex(builder.build().buffer()).substring(1));
            }
        }
    }
}
"""


def ask_java(folder: Path, questions: list[str]) -> list[str]:
    """One line of answer for each: `DOWN magic first_offset hex`, `READ hex`, `WRITE magic codec count`."""
    source = folder / "MessageSets.java"
    source.write_text(SOURCE)
    command = java_command(str(source), options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    at = command.index("-cp") + 1
    command[at] = f"{earlier_clients_jar()}:{command[at]}"
    done = subprocess.run(
        command, input="\n".join(questions) + "\n", capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
