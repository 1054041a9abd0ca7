"""Bytes ↔ values: every file format of a log directory, and the searches in them.

Functions here take buffers and return values, arrays or bytes: they open no file, read no clock and
log nothing. Each module is one format and can be used by itself:

=========================  =========================================================================
records                    `record_batch` (as Python values), `record_columns` (as Arrow buffers),
                           `record_builder` (to write them), `batch_header` (headers, checksums),
                           `batch_sequence` (headers checked against each other and the indexes),
                           `control_records`, `compression`, `decompression`, `crc`
indexes                    `indexes` (offset index and time index), `index_growth`,
                           `index_builder`, `transaction_index`
transactions               `transactions`, `producer_state`, `producer_snapshot`,
                           `transaction_state`
small files, names         `checkpoints`, `leader_epochs`, `raft_snapshot`, `file_names`
writing logs               `append_sets`, `recompression`, `segment_growth`
requests, internal topics  `list_offsets`, `error_codes`, `group_metadata`
=========================  =========================================================================

``docs/formats/`` has a page for each format, byte by byte.
"""
