"""configs/launch against the schemas of those who read it: Kubernetes, Kubeflow, SkyPilot. A key that the schema does
not know is a fault, as is a value of another type.

    python tests/e2e/manifests_test.py
"""

import importlib.metadata
import runpy
import sys
import unittest
from pathlib import Path
from unittest import mock

import jsonschema
import pydantic
import yaml
from kubeflow_trainer_api import models

CONFIGS = Path(__file__).resolve().parents[2] / "configs/launch"

KINDS = {
    ("v1", "Service"): models.IoK8sApiCoreV1Service,
    ("batch/v1", "Job"): models.IoK8sApiBatchV1Job,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): models.TrainerV1alpha1TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
}


def manifests(name):
    return list(yaml.safe_load_all((CONFIGS / name).read_text()))


def skypilot_schemas():
    """The schemas of a task and of its resources: of SkyPilot's file that makes them, alone, as its server, the strict
    side, sees them. The rest of SkyPilot and what it needs is not there."""
    stub = mock.MagicMock()
    stub.constants.ALL_CLOUDS = ["aws", "kubernetes"]
    stub.constants.ENV_VAR_IS_SKYPILOT_SERVER = "IS_SKYPILOT_SERVER"
    absent = ("sky", "sky.data", "sky.serve", "sky.server", "sky.skylet", "sky.utils")
    with (mock.patch.dict(sys.modules, dict.fromkeys(absent, stub)),
          mock.patch.dict("os.environ", IS_SKYPILOT_SERVER="1")):
        file = importlib.metadata.distribution("skypilot").locate_file("sky/utils/schemas.py")
        schemas = runpy.run_path(str(file))
        return schemas["get_task_schema"](), schemas["get_resources_schema"]()


class Manifests(unittest.TestCase):
    def check_kubernetes(self, manifest):
        model = KINDS[manifest["apiVersion"], manifest["kind"]].from_dict(manifest)
        self.assertEqual(model.to_dict(), manifest)  # unknown keys are not in the model

    def test_kubernetes_and_kubeflow(self):
        for name, count in (("kubernetes.yaml", 2), ("kubeflow.yaml", 2)):
            all_of_file = manifests(name)
            self.assertEqual(len(all_of_file), count)
            for manifest in all_of_file:
                with self.subTest(file=name, kind=manifest["kind"]):
                    self.check_kubernetes(manifest)

    def test_the_check_finds_unknown_keys_and_wrong_types(self):
        job = manifests("kubernetes.yaml")[1]
        job["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
        with self.assertRaises(AssertionError):
            self.check_kubernetes(job)
        job = manifests("kubernetes.yaml")[1]
        job["spec"]["completions"] = "2"
        with self.assertRaises(pydantic.ValidationError):
            self.check_kubernetes(job)

    def test_the_names_and_numbers_of_the_kubernetes_job_agree(self):
        service, job = manifests("kubernetes.yaml")
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        name, nodes = job["metadata"]["name"], spec["completions"]
        env = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual((spec["parallelism"], env["PET_NNODES"]), (nodes, str(nodes)))
        self.assertEqual(env["PET_MASTER_ADDR"], f"{name}-0.{pod['subdomain']}")
        for rule in spec["podFailurePolicy"]["rules"][:2]:
            self.assertEqual(rule["onExitCodes"]["containerName"], pod["containers"][0]["name"])

    def test_the_kubeflow_job_uses_the_runtime_beside_it(self):
        runtime, job = manifests("kubeflow.yaml")
        self.assertEqual(job["spec"]["runtimeRef"], {"kind": runtime["kind"], "name": runtime["metadata"]["name"]})

    def test_skypilot(self):
        # Not checked as schemas first: what they say of keys that the task does not have may come from the stub.
        validators = map(jsonschema.Draft202012Validator, skypilot_schemas())
        check_task, check_resources = (validator.validate for validator in validators)
        (task,) = manifests("skypilot.yaml")
        resources = task["resources"]
        check_task(task)
        check_resources(resources)
        for check, checked, inside in ((check_task, task, task), (check_resources, resources, resources),
                                       (check_resources, resources, resources["job_recovery"])):
            inside["no_such_key"] = 1
            with self.assertRaisesRegex(jsonschema.ValidationError, "no_such_key"):
                check(checked)
            del inside["no_such_key"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
