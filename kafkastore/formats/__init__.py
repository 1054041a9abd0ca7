"""Bytes ↔ values: everything that lies in a log directory, and the searches over it.

Nothing here opens a file, reads a clock or logs; functions take buffers and give values, arrays or
bytes.  Each module is one format and can be used by itself:

=========================  =========================================================================
records                    `record_batch` (as Python values), `record_columns` (as Arrow buffers),
                           `record_builder` (written), `batch_header` (headers alone, checksums),
                           `batch_sequence` (headers against each other and against the indexes),
                           `control_records`, `compression`, `decompression`, `crc`
indexes                    `indexes` (offset index and time index), `index_growth`,
                           `index_builder`, `transaction_index`
transactions               `transactions`, `producer_state`, `producer_snapshot`,
                           `transaction_state`
small files, names         `checkpoints`, `leader_epochs`, `raft_snapshot`, `file_names`
written logs               `append_sets`, `recompression`, `segment_growth`
requests, internal topics  `list_offsets`, `error_codes`, `group_metadata`
=========================  =========================================================================

``docs/formats/`` has a page for each, byte by byte.
"""
