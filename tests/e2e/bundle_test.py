"""A bundle on a machine that is not the one it was made on: elsewhere, in a path with a space, with an empty environment,
LibTorch in each place where it may be, and the system's libstdc++ too old.

    python tests/e2e/bundle_test.py TRAINER_BINARY [TEST...]
"""

import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(sysconfig.get_paths()["purelib"]) / "torch"
TRAINER = ""


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="trainer_bundle_")
        cls.path = Path(cls.directory.name)
        cls.report = subprocess.run(
            [ROOT / "scripts/bundle", cls.path / "bundle.tar.gz", "--no-build", "--build-dir", TRAINER.parents[1]],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        with tarfile.open(cls.path / "bundle.tar.gz") as tar:
            tar.extractall(cls.path / "some where")
        cls.bundle = next((cls.path / "some where").iterdir())

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_trainer(self, *arguments, code=0, path="/nowhere", **environment):
        result = subprocess.run([self.bundle / "bin/trainer", *arguments], cwd=self.bundle, capture_output=True,
                                text=True, timeout=300, env={"PATH": str(path), **environment})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def assert_trains(self, libtorch, **environment):
        version = self.run_trainer("--version", **environment)
        self.assertRegex(version, r"^trainer \d+\.\d+\.\d+\nLibTorch 2\.11\.")
        self.assertEqual(version.rstrip().split(" in ", 1)[1], str(libtorch))
        self.assertIn("203,522", self.run_trainer("check", "configs/smoke.yaml", **environment))
        output = self.run_trainer("run", "configs/smoke.yaml", "--nproc-per-node=2", "--set", "hardware.device=cpu",
                                  **environment)
        self.assertIn("finished", output)

    def directory_with(self, name, **files):
        directory = self.path / name
        directory.mkdir()
        for file, text in files.items():
            (directory / file).write_text(text)
            (directory / file).chmod(0o755)
        return directory

    def test_libtorch_named_by_the_environment(self):
        self.assert_trains(TORCH.resolve(), TRAINER_LIBTORCH=str(TORCH))

    def test_text_is_prepared_without_libtorch_and_parquet_with_the_pyarrow_of_the_python_on_path(self):
        texts = self.directory_with("texts", **{"a.txt": "one"})
        pq.write_table(pa.table({"text": ["one", "two"]}), texts / "b.parquet")
        prepare = ("prepare", "--tokenizer", "byte", "--output", str(texts / "out"), "--force")
        self.assertIn("4 tokens, 1 document", self.run_trainer(*prepare, str(texts / "a.txt")))
        parquet = (*prepare, str(texts / "b.parquet"))
        self.assertIn("8 tokens, 2 documents", self.run_trainer(*parquet, path=Path(sys.prefix) / "bin"))
        self.assertIn("pip install 'pyarrow==", self.run_trainer(*parquet, code=3))

    def test_libtorch_beside_the_program(self):
        link = self.bundle / "libtorch"
        link.symlink_to(TORCH)
        self.addCleanup(link.unlink)
        self.assert_trains(TORCH.resolve())

    def test_libtorch_of_the_python_on_path(self):
        self.assert_trains(TORCH.resolve(), path=Path(sys.prefix) / "bin")

    def test_a_python_elsewhere_than_its_packages_is_asked(self):
        shims = self.directory_with("shims", python3=f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.assertIn(f" in {TORCH.resolve()}\n", self.run_trainer("--version", path=f"{shims}:/bin"))

    def test_no_libtorch_is_said_with_the_places_looked_at(self):
        python = self.directory_with("python_without_torch", python3="#!/bin/sh\necho\n")
        expected = (f"found no LibTorch 2.11; looked at\n  beside the program: {self.bundle}/libtorch does not exist\n"
                    f"  python3 on PATH: {python}/python3 has no torch package\nhint: ")
        self.assertIn(expected, self.run_trainer("check", "configs/smoke.yaml", path=f"{python}:/bin", code=1))
        self.assertIn(expected, self.run_trainer("run", "configs/smoke.yaml", path=f"{python}:/bin", code=1))
        self.assertIn(expected, self.run_trainer("--version", path=f"{python}:/bin"))
        self.assertIn("python3 on PATH: there is none", self.run_trainer("check", "configs/smoke.yaml", code=1))

    def test_what_is_no_libtorch_2_11_is_refused_with_its_version(self):
        def refused(directory):
            return self.run_trainer("check", "configs/smoke.yaml", code=1, TRAINER_LIBTORCH=str(directory))

        other = self.path / "other"
        self.assertIn(f"TRAINER_LIBTORCH: {other} does not exist", refused(other))
        (other / "lib").mkdir(parents=True)
        self.assertIn(f"{other} has no lib/libtorch_cpu.so", refused(other))
        (other / "lib/libtorch_cpu.so").write_text("")
        self.assertIn(f"{other} is of unknown version", refused(other))
        (other / "share/cmake/Torch").mkdir(parents=True)
        (other / "share/cmake/Torch/TorchConfigVersion.cmake").write_text('set(PACKAGE_VERSION "2.8.0")\n')
        self.assertIn(f"{other} is version 2.8.0", refused(other))
        (other / "build-version").write_text("2.110.0+cpu\n")
        self.assertIn(f"{other} is version 2.110.0+cpu", refused(other))
        (other / "version.py").write_text("from typing import Optional\n__version__ = '2.9.1+cu128'\n")
        self.assertIn(f"{other} is version 2.9.1+cu128", refused(other))
        (other / "version.py").write_text("__version__ = '2.11.1'\n")
        self.assertIn(f"cannot load {other}/lib/libtorch_cpu.so: ", refused(other))

    def test_an_old_libstdcxx_of_the_system_is_passed_over(self):
        old = self.directory_with("old", **{"old.c": "int none;", "versions": "GLIBCXX_3.4 { none; };"})
        subprocess.run(["cc", "-shared", "-Wl,-soname,libstdc++.so.6", f"-Wl,--version-script={old}/versions", "-o",
                        old / "libstdc++.so.6", old / "old.c"], check=True)
        self.assert_trains(TORCH.resolve(), TRAINER_LIBTORCH=str(TORCH), LD_LIBRARY_PATH=str(old))
        fallback = self.bundle / "lib/fallback"
        fallback.rename(self.bundle / "lib/hidden")
        self.addCleanup((self.bundle / "lib/hidden").rename, fallback)
        error = self.run_trainer("check", "configs/smoke.yaml", code=1, TRAINER_LIBTORCH=str(TORCH),
                                 LD_LIBRARY_PATH=str(old))
        self.assertRegex(error, rf"cannot load .*libtorch_cpu\.so: {old}/libstdc\+\+\.so\.6: version `.*' not found")

    def test_a_library_of_another_version_is_refused(self):
        library = self.bundle / "lib/libtrainer_torch.so"
        source = self.directory_with("stub", **{"empty.c": ""}) / "empty.c"
        library.rename(library.with_suffix(".kept"))
        self.addCleanup(library.with_suffix(".kept").rename, library)
        subprocess.run(["cc", "-shared", "-o", library, source], check=True)
        error = self.run_trainer("check", "configs/smoke.yaml", code=1, TRAINER_LIBTORCH=str(TORCH))
        self.assertIn("libtrainer_torch.so is of another version of this program", error)

    def test_gpu_check_runs_from_it(self):
        result = subprocess.run([sys.executable, self.bundle / "scripts/gpu_check", "--device=cpu", "--quick",
                                 "--only=gpu_test|smoke|fp32", f"--report={self.path}/gpu_check.json"], capture_output=True,
                                text=True, timeout=300, env={"PATH": "/nowhere", "TRAINER_LIBTORCH": str(TORCH)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads((self.path / "gpu_check.json").read_text())
        self.assertEqual([check["name"] for check in report["checks"]],
                         ["gpu_test", "smoke", "bert_classifier fp32 x1", "bert_classifier fp32 x2", "gpt fp32 x1",
                          "gpt fp32 x2"])
        self.assertEqual(report["bundle"], (self.bundle / "VERSION").read_text().splitlines())

    def test_the_report_says_how_old_a_system_may_be(self):
        self.assertEqual((self.bundle / "VERSION").read_text(), self.report[:self.report.index("libstdc++")]
                         + re.search("libstdc.*\n", self.report).group())
        glibc = re.search(r"^glibc (\d+)\.(\d+)$", self.report, re.MULTILINE)
        self.assertLessEqual(tuple(map(int, glibc.groups())), (2, 35), "Ubuntu 22.04 runs it")
        self.assertRegex(self.report, r"bundle\.tar\.gz: [\d.]+ MB, [\d.]+ MB unpacked; [\d.]+ s\n$")


if __name__ == "__main__":
    TRAINER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
