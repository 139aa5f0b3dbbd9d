"""Checks a Kubernetes job that `cleave launch` wrote, and prints its pods' script.

    check_job.py JOB.yaml NODES RANKS_OF_NODE GPUS
"""
import sys

import yaml

nodes, ranks, gpus = map(int, sys.argv[2:])
service, job = yaml.safe_load_all(open(sys.argv[1]))
name = service["metadata"]["name"]
assert service["spec"]["publishNotReadyAddresses"] and service["spec"]["clusterIP"] == "None"
assert service["spec"]["selector"] == {"job-name": name} and job["metadata"]["name"] == name
spec = job["spec"]
assert spec["completions"] == spec["parallelism"] == nodes and spec["completionMode"] == "Indexed"
assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [75]
pod = spec["template"]["spec"]
assert pod["subdomain"] == name and pod["restartPolicy"] == "Never"  # the failure policy wants it
container, = pod["containers"]
variables = {variable["name"]: variable.get("value") for variable in container["env"]}
assert variables["WORLD_SIZE"] == str(nodes * ranks) and variables["LOCAL_WORLD_SIZE"] == str(ranks)
assert variables["MASTER_ADDR"] == f"{name}-0.{name}"
assert container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0) == gpus
mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
assert mounts["memory"] == "/dev/shm" and set(mounts) == {volume["name"] for volume in pod["volumes"]}
print(container["command"][2], end="")
