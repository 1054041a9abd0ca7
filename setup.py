"""What pyproject.toml cannot say: the Cython modules, and the folders' import names."""
import os
import shutil
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CYTHON_MODULES = [
    "kafkastore.formats.crc",
    "kafkastore.formats.batch_header",
    "kafkastore.formats.record_batch",
    "kafkastore.formats.arrow_memory",
    "kafkastore.formats.record_columns",
    "kafkastore.formats.record_rows",
    "kafkastore.formats.batch_builder",
    "kafkastore.formats.index_builder",
    "kafkastore.formats.producer_entry",
    "kafkastore.formats.append_sets",
    "kafkastore.formats.batch_sequence",
    "kafkastore.formats.segment_growth",
    "kafkastore.formats.indexes",
    "kafkastore.reads",
    "kafkastore.segment.timestamp_search",
    "kafkastore.segment.segment_glimpse",
]

PACKAGE_FOLDERS = {
    "kafkastore": "kafkastore",
    "kafkastore.formats": "kafkastore/formats",
    "kafkastore.remote": "kafkastore/remote",
    "kafkastore.segment": "kafkastore/segment",
    "kafkastore.log": "kafkastore/log",
    "kafkastore.lookup": "kafkastore/lookup",
    "kafkastore.store": "kafkastore/store",
    "kafkastore.changes": "kafkastore/changes",
    "kafkastore.checks": "kafkastore/checks",
    "kafkastore.broker": "kafkastore/broker",
    "kafkastore.kip_33": "kafkastore/kip_33",
    "kafkastore.jobs": "kafkastore/jobs",
    "kafkastore.spark": "kafkastore/spark",
    "kafkastore.spark.source": "kafkastore/spark/source",
    "kafkastore.spark.source.streaming": "kafkastore/spark/source/streaming",
    "kafkastore.spark.source.writing": "kafkastore/spark/source/writing",
    "kafkastore.spark.jobs": "kafkastore/spark/jobs",
    "kafkastore.spark.pipeline": "kafkastore/spark/pipeline",
    "kafkastore.cli": "kafkastore/cli",
    "kafkastore.samples": "kafkastore/samples",
    "kafkastore.legacy": "legacy",
    "kafkastore.migration": "migration",
}


class BuildExtension(build_ext):
    """Compiles nothing twice for an editable install.

    Such an install builds in a folder of its own, and copies into the source folders; a module that
    ``build_ext --inplace`` left there is taken first, and compiled only if its sources are newer.
    """

    def build_extension(self, ext: Extension) -> None:
        """Build one module."""
        package = ext.name.rpartition(".")[0]
        folder = self.get_finalized_command("build_py").get_package_dir(package)
        built = Path(self.get_ext_fullpath(ext.name))
        if self.editable_mode and (in_place := Path(folder, built.name)).exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(in_place, built)
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildExtension},
    # It runs the entry point of pyproject.toml, with SIGINT blocked.
    scripts=["kafkastore/cli/launcher/kafkastore"],
    packages=list(PACKAGE_FOLDERS),
    # The one module that is installed beside the package: PySpark finds a data source by itself
    # where a top-level module is called pyspark_*. "" is the folder of such modules.
    py_modules=["pyspark_kafkastore"],
    package_dir={"": "kafkastore/spark/top_level", **PACKAGE_FOLDERS},
    package_data={
        "": ["*.pxd", "*.pyi", "*.h", "py.typed", "*.tar.xz", "*.html.jinja"],
        "kafkastore.spark": ["java_home/bin/java", "log4j2.properties"],
    },
    ext_modules=cythonize(
        [
            Extension(
                module,
                [module.replace(".", "/") + ".pyx"],
                include_dirs=[numpy.get_include(), "kafkastore/formats"],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                extra_compile_args=["-O3", "-g0", "-Wno-unused-function"],
            )
            for module in CYTHON_MODULES
        ],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
        },
    ),
    options={
        # Without this the metadata folder would land in the folder named for "" above.
        "egg_info": {"egg_base": "."},
        "build_ext": {"parallel": os.cpu_count()},
    },
)
