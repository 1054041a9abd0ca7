"""Bytes ↔ values: every file format of a log directory, and the searches in them.

Functions here take buffers and return values, arrays or bytes: they open no file, read no clock and
log nothing. Each module is one format and can be used by itself:

============  ======================================================================================
`records`     `record_batch` (as Python values), `record_columns` (as Arrow buffers),
              `record_builder` (to write them), `batch_header` (headers, checksums),
              `batch_sequence` (headers checked against each other and the indexes),
              `append_sets`, `latest_offsets` (the last record of each key), `control_records`,
              `compression`, `decompression`, `recompression`
`indexes`     `index_format` (offset index and time index), `index_builder`, `index_growth`,
              `segment_growth`, `transaction_index`
`state`       `file_names`, `checkpoints`, `leader_epochs`, `quorum_state`, `producer_state`,
              `producer_snapshot`, `transactions`
`messages`    `description` (the fields of messages, as a text), `message_codec`, `message_table`,
              `record_tables`
`topics`      the records of Kafka's own topics: `cluster_metadata`, `consumer_offsets`,
              `transaction_state`, `share_group_state`, `remote_log_metadata`
`requests`    `list_offsets`
`primitives`  what several formats use: `crc`, `java_text`, `json_text`, `error_codes`
============  ======================================================================================

``docs/formats/`` has a page for each format, byte by byte.
"""
