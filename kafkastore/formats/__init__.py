"""Bytes ↔ values: every file format of a log directory, and the searches in them.

Functions here take buffers and return values, arrays or bytes: they open no file, read no clock and
log nothing. Each module is one format and can be used by itself:

============  ======================================================================================
`records`     `record_batch` (as Python values), `record_columns` (as Arrow buffers),
              `record_builder` (to write them), `batch_header` (headers, checksums),
              `batch_sequence` (headers checked against each other and the indexes),
              `append_sets`, `control_records`, `compression`, `decompression`, `recompression`
`indexes`     `index_format` (offset index and time index), `index_builder`, `index_growth`,
              `segment_growth`, `transaction_index`
`state`       `file_names`, `checkpoints`, `leader_epochs`, `raft_snapshot`, `producer_state`,
              `producer_snapshot`, `transactions`
`topics`      records of Kafka's own topics: `group_metadata`, `transaction_state`
`requests`    `list_offsets`
`primitives`  what several formats use: `crc`, `protocol`, `java_text`, `json_text`, `error_codes`
============  ======================================================================================

``docs/formats/`` has a page for each format, byte by byte.
"""
