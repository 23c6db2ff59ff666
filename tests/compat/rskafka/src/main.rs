//! What rskafka does in each scenario: program BOOTSTRAP_SERVERS SCENARIO JSON. See test_rskafka.py.

use std::collections::BTreeMap;
use std::error::Error;

use chrono::{DateTime, Utc};
use rskafka::client::error::Error as ClientError;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{json, Value};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let servers = arguments[1].split(',').map(String::from).collect();
    let given: Value = serde_json::from_str(&arguments[3])?;
    let client = ClientBuilder::new(servers).client_id("rskafka").build().await?;
    let told = match arguments[2].as_str() {
        "topics" => topics(&client, &given).await?,
        "produce" => produce(&client, &given).await?,
        "read" => read(&client, &given).await?,
        "offsets" => offsets(&client, &given).await?,
        other => return Err(other.into()),
    };
    println!("{told}");
    Ok(())
}

fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_default()
}

fn number(given: &Value, name: &str) -> i64 {
    given[name].as_i64().unwrap_or_default()
}

fn error_of<T>(result: std::result::Result<T, ClientError>) -> String {
    match result {
        Ok(_) => "none".into(),
        Err(ClientError::ServerError { protocol_error, .. }) => format!("{protocol_error:?}"),
        Err(other) => format!("{other:?}"),
    }
}

async fn partition(client: &Client, given: &Value) -> Result<PartitionClient> {
    Ok(client.partition_client(text(given, "topic"), 0, UnknownTopicHandling::Error).await?)
}

async fn topics(client: &Client, given: &Value) -> Result<Value> {
    let controller = client.controller_client()?;
    let name = text(given, "topic");
    let created = error_of(controller.create_topic(name, 3, 1, 10_000).await);
    let again = error_of(controller.create_topic(name, 3, 1, 10_000).await);
    let invalid = error_of(controller.create_topic("a b", 3, 1, 10_000).await);
    let listed = client.list_topics().await?;
    let partitions = listed.iter().find(|topic| topic.name == name).map(|topic| topic.partitions.len());
    let deleted = error_of(controller.delete_topic(name, 10_000).await);
    let gone = error_of(controller.delete_topic(name, 10_000).await);
    Ok(json!({"created": created, "again": again, "invalid": invalid, "partitions": partitions, "deleted": deleted, "gone": gone}))
}

async fn produce(client: &Client, given: &Value) -> Result<Value> {
    let compression = match text(given, "codec") {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let record = |index: i64| Record {
        key: Some(format!("k{index}").into_bytes()),
        value: if index == 0 { None } else { Some(format!("v{index}").into_bytes()) },
        headers: BTreeMap::from([("h".into(), b"1".to_vec()), ("empty".into(), vec![])]),
        timestamp: time(number(given, "time") + index),
    };
    let records = (0..number(given, "count")).map(record).collect();
    let partition = partition(client, given).await?;
    let offsets = partition.produce(records, compression).await?;
    let large = Record { key: None, value: Some(vec![1; 2_000_000]), headers: BTreeMap::new(), timestamp: time(0) };
    let refused = error_of(partition.produce(vec![large], Compression::NoCompression).await);
    Ok(json!({"offsets": offsets, "refused": refused}))
}

fn time(milliseconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(milliseconds).unwrap_or_default()
}

fn row(offset: i64, record: &Record) -> Value {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: BTreeMap<_, _> = record.headers.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
    json!([
        offset,
        record.key.as_deref().map(shown),
        record.value.as_deref().map(shown),
        headers,
        record.timestamp.timestamp_millis()
    ])
}

async fn read(client: &Client, given: &Value) -> Result<Value> {
    let partition = partition(client, given).await?;
    let (mut rows, mut next, mut end) = (vec![], 0, 0);
    while (rows.len() as i64) < number(given, "count") {
        let (records, high_watermark) = partition.fetch_records(next, 1..100_000, 1_000).await?;
        for each in &records {
            rows.push(row(each.offset, &each.record));
            next = each.offset + 1;
        }
        end = high_watermark;
    }
    let beyond = error_of(partition.fetch_records(1_000_000, 1..100_000, 100).await);
    Ok(json!({"messages": rows, "end": end, "beyond": beyond}))
}

async fn offsets(client: &Client, given: &Value) -> Result<Value> {
    let partition = partition(client, given).await?;
    let first = partition.get_offset(OffsetAt::Earliest).await?;
    let end = partition.get_offset(OffsetAt::Latest).await?;
    let timed = partition.get_offset(OffsetAt::Timestamp(time(number(given, "time")))).await?;
    partition.delete_records(3, 10_000).await?;
    let after = partition.get_offset(OffsetAt::Earliest).await?;
    let beyond = error_of(partition.delete_records(99, 10_000).await);
    let missing = client.partition_client("no-such-topic", 0, UnknownTopicHandling::Error).await;
    Ok(json!({"first": first, "end": end, "timed": timed, "after": after, "beyond": beyond, "missing": error_of(missing)}))
}
