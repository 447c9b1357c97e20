"""manifest.py check FILE: whether the cluster would take the manifest; prints what is wrong with it.

manifest.py pods FILE: the pods that its controllers make of it, for the test to run. A pod is lines
"host NAME", "name NAME" (what DNS calls it), "env NAME=VALUE" and "word WORD" (of the command).

Kubernetes' own objects are held against the models of python3-kubernetes, which have every field of
its API; Kubeflow Trainer's, of which no package has any, against TRAINER.
"""

import json
import sys

import kubernetes.client
import yaml

TRAINER_API = "trainer.kubeflow.org/v1alpha1"
# A name stands for a model of Kubernetes; a tuple for several types; of a list each element is alike.
# From kubeflow/trainer, pkg/apis/trainer/v1alpha1, as of version 2.2, and JobSet's v1alpha2.
RUNTIME_SPEC = {
    "mlPolicy": {"numNodes": int, "torch": {"numProcPerNode": (int, str)}},
    "template": {
        "metadata": "V1ObjectMeta",
        "spec": {
            "replicatedJobs": [
                {"name": str, "groupName": str, "replicas": int, "template": "V1JobTemplateSpec"}
            ]
        },
    },
}
JOB_SPEC = {
    "runtimeRef": {"name": str, "apiGroup": str, "kind": str},
    "trainer": {
        "image": str,
        "command": [str],
        "args": [str],
        "env": ["V1EnvVar"],
        "numNodes": int,
        "resourcesPerNode": "V1ResourceRequirements",
        "numProcPerNode": int,
    },
    "suspend": bool,
    "activeDeadlineSeconds": int,
}
TRAINER = {"ClusterTrainingRuntime": RUNTIME_SPEC, "TrainJob": JOB_SPEC}
MODELS = {("v1", "Service"): "V1Service", ("batch/v1", "Job"): "V1Job"}
# What the controller sets itself and refuses in a TrainJob.
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


class Response:
    """What ApiClient.deserialize takes for an answer of the cluster."""

    def __init__(self, value):
        self.data = json.dumps(value)


def lost_fields(given, back, where):
    """The fields of `given` that the model does not have, or has as another type."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            if key in back:
                yield from lost_fields(value, back[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: no such field"
    elif isinstance(given, list) and isinstance(back, list):
        for i, (one, other) in enumerate(zip(given, back)):
            yield from lost_fields(one, other, f"{where}[{i}]")
    elif given != back or type(given) is not type(back):
        yield f"{where}: {given!r} would be {back!r}"


def model_errors(value, model, where):
    api = kubernetes.client.ApiClient()
    try:
        back = api.sanitize_for_serialization(api.deserialize(Response(value), model))
    except ValueError as error:  # a field that is missing, or of the wrong type
        return [f"{where}: {error}"]
    return lost_fields(value, back, where)


def schema_errors(value, schema, where):
    if isinstance(schema, str):
        yield from model_errors(value, schema, where)
    elif isinstance(schema, dict) and isinstance(value, dict):
        for key, part in value.items():
            if key in schema:
                yield from schema_errors(part, schema[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: no such field"
    elif isinstance(schema, list) and isinstance(value, list):
        for i, part in enumerate(value):
            yield from schema_errors(part, schema[0], f"{where}[{i}]")
    elif isinstance(schema, (dict, list)) or not isinstance(value, schema):
        yield f"{where}: {value!r} is of another type"


def errors_of(document):
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind in MODELS:
        yield from model_errors(document, MODELS[kind], kind[1])
    elif kind[0] == TRAINER_API and kind[1] in TRAINER:
        whole = {"apiVersion": str, "kind": str, "metadata": "V1ObjectMeta", "spec": TRAINER[kind[1]]}
        yield from schema_errors(document, whole, kind[1])
        for variable in document["spec"].get("trainer", {}).get("env", []):
            if variable["name"] in RESERVED:
                yield f"TrainJob: {variable['name']} is the controller's to set"
    else:
        yield f"{kind}: an object that is not known here"


def pods_of_train_job(runtime, job):
    """What Trainer's torch policy makes: a JobSet of the job's name with one indexed Job."""
    name = job["metadata"]["name"]
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    policy, trainer = runtime["spec"]["mlPolicy"], job["spec"]["trainer"]
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    labels = replicated["template"]["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert replicated["name"] == container["name"] == "node"
    nodes = trainer.get("numNodes", policy["numNodes"])
    workers = trainer.get("numProcPerNode", policy["torch"]["numProcPerNode"])
    for index in range(nodes):
        host = f"{name}-node-0-{index}"
        variables = {v["name"]: v["value"] for v in container.get("env", []) + trainer.get("env", [])}
        variables.update(
            PET_NNODES=nodes,
            PET_NPROC_PER_NODE=workers,
            PET_NODE_RANK=index,
            PET_MASTER_ADDR=f"{name}-node-0-0.{name}",
            PET_MASTER_PORT=29500,
            JOB_COMPLETION_INDEX=index,
        )
        command = trainer.get("command", container["command"]) + trainer.get("args", [])
        yield host, f"{host}.{name}", variables, command


def pods_of_indexed_job(service, job):
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    # Without one of these a pod would have no name, no index or no address.
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"job-name": name}
    (container,) = pod["containers"]
    for index in range(spec["completions"]):
        host = f"{name}-{index}"
        variables = {v["name"]: v["value"] for v in container.get("env", [])}
        variables["JOB_COMPLETION_INDEX"] = index
        yield host, f"{host}.{pod['subdomain']}", variables, container["command"]


def print_pods(documents):
    kinds = {document["kind"]: document for document in documents}
    if "TrainJob" in kinds:
        pods = pods_of_train_job(kinds["ClusterTrainingRuntime"], kinds["TrainJob"])
    else:
        pods = pods_of_indexed_job(kinds["Service"], kinds["Job"])
    for host, name, variables, command in pods:
        print("host", host)
        print("name", name)
        for variable, value in variables.items():
            print(f"env {variable}={value}")
        for word in command:
            print("word", word)


def main():
    action, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        documents = list(yaml.safe_load_all(file))
    if action == "pods":
        return print_pods(documents)
    errors = [error for document in documents for error in errors_of(document)]
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


main()
