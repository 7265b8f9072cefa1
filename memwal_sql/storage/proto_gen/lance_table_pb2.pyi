from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TableManifest(_message.Message):
    __slots__ = ("fields", "fragments", "version", "index_section", "timestamp", "writer_version", "base_paths", "transaction_section")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INDEX_SECTION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    WRITER_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_PATHS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_SECTION_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedScalarFieldContainer[bytes]
    fragments: _containers.RepeatedScalarFieldContainer[bytes]
    version: int
    index_section: int
    timestamp: _timestamp_pb2.Timestamp
    writer_version: WriterVersion
    base_paths: _containers.RepeatedCompositeFieldContainer[BasePath]
    transaction_section: int
    def __init__(self, fields: _Optional[_Iterable[bytes]] = ..., fragments: _Optional[_Iterable[bytes]] = ..., version: _Optional[int] = ..., index_section: _Optional[int] = ..., timestamp: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., writer_version: _Optional[_Union[WriterVersion, _Mapping]] = ..., base_paths: _Optional[_Iterable[_Union[BasePath, _Mapping]]] = ..., transaction_section: _Optional[int] = ...) -> None: ...

class BasePath(_message.Message):
    __slots__ = ("is_dataset_root",)
    IS_DATASET_ROOT_FIELD_NUMBER: _ClassVar[int]
    is_dataset_root: bool
    def __init__(self, is_dataset_root: _Optional[bool] = ...) -> None: ...

class WriterVersion(_message.Message):
    __slots__ = ("library", "version")
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    library: str
    version: str
    def __init__(self, library: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("id", "files")
    ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    id: int
    files: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[int] = ..., files: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("transaction_properties", "create_index", "rewrite", "reserve_fragments", "update", "clone")
    class TransactionPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRANSACTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CREATE_INDEX_FIELD_NUMBER: _ClassVar[int]
    REWRITE_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    CLONE_FIELD_NUMBER: _ClassVar[int]
    transaction_properties: _containers.ScalarMap[str, str]
    create_index: bytes
    rewrite: bytes
    reserve_fragments: bytes
    update: bytes
    clone: bytes
    def __init__(self, transaction_properties: _Optional[_Mapping[str, str]] = ..., create_index: _Optional[bytes] = ..., rewrite: _Optional[bytes] = ..., reserve_fragments: _Optional[bytes] = ..., update: _Optional[bytes] = ..., clone: _Optional[bytes] = ...) -> None: ...

class IndexSection(_message.Message):
    __slots__ = ("indices",)
    INDICES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedCompositeFieldContainer[IndexMetadata]
    def __init__(self, indices: _Optional[_Iterable[_Union[IndexMetadata, _Mapping]]] = ...) -> None: ...

class IndexMetadata(_message.Message):
    __slots__ = ("uuid", "fields", "name", "dataset_version", "fragment_bitmap", "index_details", "index_version")
    UUID_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_BITMAP_FIELD_NUMBER: _ClassVar[int]
    INDEX_DETAILS_FIELD_NUMBER: _ClassVar[int]
    INDEX_VERSION_FIELD_NUMBER: _ClassVar[int]
    uuid: bytes
    fields: _containers.RepeatedScalarFieldContainer[int]
    name: str
    dataset_version: int
    fragment_bitmap: bytes
    index_details: _any_pb2.Any
    index_version: int
    def __init__(self, uuid: _Optional[bytes] = ..., fields: _Optional[_Iterable[int]] = ..., name: _Optional[str] = ..., dataset_version: _Optional[int] = ..., fragment_bitmap: _Optional[bytes] = ..., index_details: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., index_version: _Optional[int] = ...) -> None: ...

class AnyIndexDetails(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SchemaField(_message.Message):
    __slots__ = ("name", "id", "parent_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    parent_id: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., parent_id: _Optional[int] = ...) -> None: ...
