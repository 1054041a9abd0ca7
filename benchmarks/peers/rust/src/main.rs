//! Decodes every batch of a segment with the kafka-protocol crate, which always checks the CRC.
//!
//!     rust-peer decode|decode-memory SEGMENT.log
//!
//! `decode` opens and reads the file in each round, `decode-memory` once, before the first round. A
//! line `check` or `time` on stdin is answered by one JSON object on stdout.
use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{Record, RecordBatchDecoder};
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::time::Instant;

/// Bytes of a read: of 64 KiB to 4 MiB the fastest, or as fast as it, for every data set.
const READ_BYTES: usize = 256 * 1024;

/// Seconds this thread has been on a core.
fn cpu() -> f64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) };
    assert_eq!(status, 0);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Where the batches come from.
enum Source {
    Path(String),
    Memory(Bytes),
}

/// Bytes of the first batch; None if there are fewer than its length field.
fn batch_bytes(data: &[u8]) -> Option<usize> {
    let length = data.get(8..12)?;
    Some(12 + u32::from_be_bytes(length.try_into().unwrap()) as usize)
}

/// Decodes all complete batches, and hands each record to `see`. Their bytes are counted.
fn decode_batches(data: &Bytes, see: &mut impl FnMut(&Record)) -> usize {
    let mut at = 0;
    while let Some(size) = batch_bytes(&data[at..]) {
        let end = at + size;
        if end > data.len() {
            break;
        }
        let set = RecordBatchDecoder::decode(&mut data.slice(at..end)).unwrap();
        set.records.iter().for_each(&mut *see);
        at = end;
    }
    at
}

/// Reads a file piece by piece into one buffer: records refer to it only until they were seen.
fn decode_file(path: &str, see: &mut impl FnMut(&Record)) {
    let mut file = File::open(path).unwrap();
    let mut buffer = BytesMut::zeroed(READ_BYTES);
    let mut filled = 0;
    loop {
        let got = file.read(&mut buffer[filled..]).unwrap();
        filled += got;
        if got == 0 {
            assert_eq!(filled, 0, "the last batch is torn");
            return;
        }
        let data = buffer.freeze();
        let done = decode_batches(&data.slice(..filled), see);
        buffer = data.try_into_mut().expect("no record is kept");
        buffer.copy_within(done..filled, 0);
        filled -= done;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}

fn decode(source: &Source, mut see: impl FnMut(&Record)) {
    match source {
        Source::Path(path) => decode_file(path, &mut see),
        Source::Memory(data) => {
            let done = decode_batches(data, &mut see);
            assert_eq!(done, data.len(), "the last batch is torn");
        }
    }
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

fn time(source: &Source) -> String {
    let (wall, used) = (Instant::now(), cpu());
    let (mut records, mut sum) = (0u64, 0i64);
    decode(source, |record| {
        records += 1;
        sum = sum.wrapping_add(touch(record));
    });
    let (wall, used) = (wall.elapsed().as_secs_f64(), cpu() - used);
    format!("{{\"cpu\":{used},\"wall\":{wall},\"records\":{records},\"sum\":{sum}}}")
}

/// CRC-32 of each column: int64 offsets and timestamps, int32 lengths, then the bytes end to end.
fn check(source: &Source) -> String {
    let mut columns: [crc32fast::Hasher; 6] = Default::default();
    let mut records = 0u64;
    decode(source, |record| {
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
    let source = match arguments[1].as_str() {
        "decode" => Source::Path(arguments[2].clone()),
        "decode-memory" => Source::Memory(Bytes::from(std::fs::read(&arguments[2]).unwrap())),
        other => panic!("what is {other:?}?"),
    };
    for line in std::io::stdin().lock().lines() {
        let answer = match line.unwrap().as_str() {
            "time" => time(&source),
            "check" => check(&source),
            other => panic!("what is {other:?}?"),
        };
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}
