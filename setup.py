"""The Cython modules and the folders' import names, beyond pyproject.toml."""
import os
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CYTHON_MODULES = [
    "kafkastore.cli.cat.line_buffer",
    "kafkastore.cli.cat.parquet_footer",
    "kafkastore.cli.cat.record_lines",
    "kafkastore.formats.messages.message_codec",
    "kafkastore.formats.primitives.crc",
    "kafkastore.formats.records.batch_header",
    "kafkastore.formats.records.record_batch",
    "kafkastore.formats.records.arrow_memory",
    "kafkastore.formats.records.decoders",
    "kafkastore.formats.records.record_columns",
    "kafkastore.formats.records.record_rows",
    "kafkastore.formats.records.latest_offsets",
    "kafkastore.formats.records.batch_builder",
    "kafkastore.formats.indexes.index_builder",
    "kafkastore.formats.state.aborted_batches",
    "kafkastore.formats.state.producer_entry",
    "kafkastore.formats.records.append_sets",
    "kafkastore.formats.records.batch_sequence",
    "kafkastore.formats.indexes.segment_growth",
    "kafkastore.formats.indexes.index_format",
    "kafkastore.metadata.topics",
    "kafkastore.reads",
    "kafkastore.segment.timestamp_search",
    "kafkastore.segment.decoding.header_scan",
    "kafkastore.segment.decoding.piece_decoder",
    "kafkastore.segment.segment_summary",
    "kafkastore.segment.decoding.usual_batches",
]

# The codecs' own C sources, compiled into the module that calls them.
VENDOR = "kafkastore/formats/records/vendor"
C_SOURCES = {
    "kafkastore.formats.records.decoders": [
        f"{VENDOR}/lz4.c",
        f"{VENDOR}/zstddeclib.c",
        f"{VENDOR}/libdeflate/lib/deflate_decompress.c",
        f"{VENDOR}/libdeflate/lib/utils.c",
        f"{VENDOR}/libdeflate/lib/x86/cpu_features.c",
    ],
}
# Their functions stay within the module: other libraries of a process have the same names.
HIDDEN = [("LZ4LIB_VISIBILITY", ""), ("ZSTDLIB_VISIBLE", ""), ("ZSTDERRORLIB_VISIBLE", "")]

# Both kinds of index share its functions, with the kind as a constant. GCC compiles a function for
# each constant only if it is inlined, and without this it considers the larger ones too large.
ALWAYS_INLINED = "kafkastore.formats.indexes.index_format"
ALWAYS_INLINE = ("CYTHON_INLINE", "__inline__ __attribute__((always_inline))")

PACKAGE_FOLDERS = {
    "kafkastore": "kafkastore",
    "kafkastore.formats": "kafkastore/formats",
    "kafkastore.formats.primitives": "kafkastore/formats/primitives",
    "kafkastore.formats.records": "kafkastore/formats/records",
    "kafkastore.formats.indexes": "kafkastore/formats/indexes",
    "kafkastore.formats.messages": "kafkastore/formats/messages",
    "kafkastore.formats.state": "kafkastore/formats/state",
    "kafkastore.formats.topics": "kafkastore/formats/topics",
    "kafkastore.formats.requests": "kafkastore/formats/requests",
    "kafkastore.remote": "kafkastore/remote",
    "kafkastore.segment": "kafkastore/segment",
    "kafkastore.segment.decoding": "kafkastore/segment/decoding",
    "kafkastore.log": "kafkastore/log",
    "kafkastore.log.parallel": "kafkastore/log/parallel",
    "kafkastore.metadata": "kafkastore/metadata",
    "kafkastore.recovery": "kafkastore/recovery",
    "kafkastore.writing": "kafkastore/writing",
    "kafkastore.lookup": "kafkastore/lookup",
    "kafkastore.store": "kafkastore/store",
    "kafkastore.changes": "kafkastore/changes",
    "kafkastore.checks": "kafkastore/checks",
    "kafkastore.server": "kafkastore/server",
    "kafkastore.server.fetch": "kafkastore/server/fetch",
    "kafkastore.server.groups": "kafkastore/server/groups",
    "kafkastore.use_cases": "kafkastore/use_cases",
    "kafkastore.jobs": "kafkastore/jobs",
    "kafkastore.spark": "kafkastore/spark",
    "kafkastore.spark.source": "kafkastore/spark/source",
    "kafkastore.spark.source.streaming": "kafkastore/spark/source/streaming",
    "kafkastore.spark.source.writing": "kafkastore/spark/source/writing",
    "kafkastore.spark.jobs": "kafkastore/spark/jobs",
    "kafkastore.spark.pipeline": "kafkastore/spark/pipeline",
    "kafkastore.cli": "kafkastore/cli",
    "kafkastore.cli.altering": "kafkastore/cli/altering",
    "kafkastore.cli.cat": "kafkastore/cli/cat",
    "kafkastore.cli.commands": "kafkastore/cli/commands",
    "kafkastore.cli.dump": "kafkastore/cli/dump",
    "kafkastore.cli.options": "kafkastore/cli/options",
    "kafkastore.cli.output": "kafkastore/cli/output",
    "kafkastore.samples": "kafkastore/samples",
    "kafkastore.legacy": "legacy",
    "kafkastore.migration": "migration",
}


DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    # docs/threads.md says what the modules share.
    "freethreading_compatible": True,
}


class BuildExtension(build_ext):
    """Translate to C only for this command; reuse compiled modules in an editable install.

    Such an install builds in a separate folder, and copies into the source folders; a module
    from ``build_ext --inplace`` is copied first, and compiled only if its sources are newer.
    """

    def build_extensions(self) -> None:
        """Translate the modules, and build them."""
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions, build_dir="build/cython", compiler_directives=DIRECTIVES
        )
        for extension, made in zip(self.extensions, translated, strict=True):
            extension.sources, extension.depends = made.sources, made.depends
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build one module."""
        package = ext.name.rpartition(".")[0]
        folder = self.get_finalized_command("build_py").get_package_dir(package)
        built = Path(self.get_ext_fullpath(ext.name))
        if self.editable_mode and (in_place := Path(folder, built.name)).exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(in_place, built)
        super().build_extension(ext)


class BuildWheel(bdist_wheel):
    """Add the list of the codecs' C sources to a wheel's metadata, where PEP 770 wants it."""

    def write_wheelfile(self, metadata: str, *args: str) -> None:
        """Write the metadata next to the project's."""
        super().write_wheelfile(metadata, *args)
        folder = Path(metadata, "sboms")
        folder.mkdir(exist_ok=True)
        shutil.copy(Path(VENDOR, "vendor.cdx.json"), folder)


setup(
    cmdclass={"bdist_wheel": BuildWheel, "build_ext": BuildExtension},
    # The script runs the entry point of pyproject.toml with SIGINT blocked.
    scripts=["kafkastore/cli/launcher/kafkastore"],
    packages=list(PACKAGE_FOLDERS),
    # The one module that is installed next to the package: PySpark finds a data source
    # automatically if a top-level module is called pyspark_*. "" is the folder of such modules.
    py_modules=["pyspark_kafkastore"],
    package_dir={"": "kafkastore/spark/top_level", **PACKAGE_FOLDERS},
    package_data={
        "": ["*.pxd", "*.pyi", "*.h", "py.typed", "*.tar.xz", "*.html.jinja"],
        "kafkastore.spark": ["java_home/bin/java", "log4j2.properties"],
    },
    ext_modules=[
        Extension(
            module,
            [module.replace(".", "/") + ".pyx", *C_SOURCES.get(module, [])],
            include_dirs=["kafkastore/formats/primitives", "kafkastore/formats/records"],
            define_macros=[
                *([ALWAYS_INLINE] if module == ALWAYS_INLINED else []),
                *(HIDDEN if module in C_SOURCES else []),
            ],
            # Offsets from files may overflow: as Java's longs, they wrap around.
            extra_compile_args=["-O3", "-g0", "-fwrapv", "-Wno-unused-function",
                                "-fvisibility=hidden"],
        )
        for module in CYTHON_MODULES
    ],
    options={
        # Without this the metadata folder would land in the folder named for "" above.
        "egg_info": {"egg_base": "."},
        "build_ext": {"parallel": os.cpu_count()},
    },
)
