//! Decodes every batch of a segment with the kafka-protocol crate, which always checks the CRC.
//!
//!     rust-peer decode SEGMENT.log
//!
//! A line `check` or `time` on stdin is answered by one JSON object on stdout.
use bytes::Bytes;
use kafka_protocol::records::{Record, RecordBatchDecoder};
use std::io::{BufRead, Write};
use std::time::Instant;

/// Seconds this thread has been on a core.
fn cpu() -> f64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) };
    assert_eq!(status, 0);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Decodes batch by batch, and hands each record to `see`. The number of batches is returned.
fn decode(data: &Bytes, mut see: impl FnMut(&Record)) -> u64 {
    let (mut batches, mut at) = (0, 0);
    while at + 12 <= data.len() {
        let length = u32::from_be_bytes(data[at + 8..at + 12].try_into().unwrap()) as usize;
        let end = at + 12 + length;
        assert!(end <= data.len(), "the last batch is torn");
        let set = RecordBatchDecoder::decode(&mut data.slice(at..end)).unwrap();
        set.records.iter().for_each(&mut see);
        batches += 1;
        at = end;
    }
    batches
}

/// What a reader of records uses: a number that depends on key, value, offset and timestamp.
fn touch(record: &Record) -> i64 {
    let key = record.key.as_ref().map_or(0, |k| k.len() as i64 + k[0] as i8 as i64);
    let value = record
        .value
        .as_ref()
        .map_or(0, |v| v.len() as i64 + v[0] as i8 as i64 + v[v.len() - 1] as i8 as i64);
    record.offset.wrapping_add(record.timestamp).wrapping_add(key + value)
}

fn time(data: &Bytes) -> String {
    let (wall, used) = (Instant::now(), cpu());
    let (mut records, mut sum) = (0u64, 0i64);
    decode(data, |record| {
        records += 1;
        sum = sum.wrapping_add(touch(record));
    });
    let (wall, used) = (wall.elapsed().as_secs_f64(), cpu() - used);
    format!("{{\"cpu\":{used},\"wall\":{wall},\"records\":{records},\"sum\":{sum}}}")
}

/// CRC-32 of each column: int64 offsets and timestamps, int32 lengths, then the bytes end to end.
fn check(data: &Bytes) -> String {
    let mut columns: [crc32fast::Hasher; 6] = Default::default();
    let mut records = 0u64;
    decode(data, |record| {
        records += 1;
        columns[0].update(&record.offset.to_le_bytes());
        columns[1].update(&record.timestamp.to_le_bytes());
        for (index, field) in [(2, &record.key), (4, &record.value)] {
            let bytes = field.as_ref().expect("neither keys nor values are null");
            columns[index].update(&(bytes.len() as i32).to_le_bytes());
            columns[index + 1].update(bytes);
        }
    });
    let names = ["offsets", "timestamps", "key_lengths", "keys", "value_lengths", "values"];
    let parts: Vec<String> = names
        .iter()
        .zip(columns)
        .map(|(name, column)| format!("\"{name}\":{}", column.finalize()))
        .collect();
    format!("{{\"records\":{records},{}}}", parts.join(","))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(arguments[1], "decode");
    let data = Bytes::from(std::fs::read(&arguments[2]).unwrap());
    for line in std::io::stdin().lock().lines() {
        let answer = match line.unwrap().as_str() {
            "time" => time(&data),
            "check" => check(&data),
            other => panic!("what is {other:?}?"),
        };
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}
