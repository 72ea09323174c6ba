#!/usr/bin/env python3
"""manifests.py: config/kubernetes without a cluster, for check-kubernetes.

    tests/kubernetes/manifests.py build/attnd                      names, ports, options, limits
    tests/kubernetes/manifests.py build/attnd build/kubernetes     and the published schemas, and kubectl
    tests/kubernetes/manifests.py --copy           takes over config/haproxy/haproxy.*, but for the shards in it

`attnd --check` runs with the variables that the image and the pod of a shard have, within the pod's
memory.  The schemas are those that @kubernetes/client-node was made from (fetch.sh); every object of
`kubectl kustomize` is held against them, and passes kubectl's dry run of a client.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "image"))
import dry_run  # noqa: E402
import schemas  # noqa: E402
import services  # noqa: E402
from services import expect, read  # noqa: E402

PLACE = "config/kubernetes"
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
READINESS = {"haproxy": "/livez"}  # holds requests while all shards are away


def documents():
    """Every object of the directory's files, by (kind, name)."""
    names = re.findall(r"(?m)^ +(?:# )?- (\w+\.yaml)$", read(f"{PLACE}/kustomization.yaml"))
    on_disk = {name for name in os.listdir(os.path.join(services.ROOT, PLACE)) if name.endswith(".yaml")}
    expect(on_disk == set(names) | {"kustomization.yaml"},
           f"kustomization.yaml names {names}, there are {sorted(on_disk)}")
    found = [item for name in names for item in yaml.safe_load_all(read(f"{PLACE}/{name}"))]
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def workloads(objects):
    return {name: item for (kind, name), item in objects.items()
            if kind in ("StatefulSet", "Deployment")}


def chosen(objects, selector):
    """The workloads whose pods have these labels."""
    return [name for name, item in workloads(objects).items()
            if selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()]


def check_selectors(objects):
    """Workloads, services and budgets choose pods that there are, by ports that these have."""
    for name, item in workloads(objects).items():
        expect(chosen(objects, item["spec"]["selector"]["matchLabels"]) == [name], f"{name}: selector")
    for (kind, name), item in objects.items():
        if kind == "PodDisruptionBudget":
            expect(len(chosen(objects, item["spec"]["selector"]["matchLabels"])) == 1, f"{name}: selector")
    ports = {name: {port["name"] for container in item["spec"]["template"]["spec"]["containers"]
                    for port in container["ports"]} for name, item in workloads(objects).items()}
    for (kind, name), item in objects.items():
        if kind != "Service":
            continue
        pod = item["spec"]["selector"].get("statefulset.kubernetes.io/pod-name")
        targets = [re.sub(r"-\d+$", "", pod)] if pod else chosen(objects, item["spec"]["selector"])
        expect(len(targets) == 1 and targets[0] in ports, f"Service {name} chooses {targets}")
        for port in item["spec"]["ports"]:
            expect(port["targetPort"] in ports.get(targets[0], ()), f"Service {name}: port {port}")
        expect(pod in (None, name), f"Service {name} is of pod {pod}")


def check_shards(objects):
    """As many addresses as HAProxy has servers, under their names; no more pods than those."""
    shards = objects["StatefulSet", "attnd"]["spec"]
    scaler = objects["HorizontalPodAutoscaler", "attnd"]["spec"]
    headless = objects["Service", shards["serviceName"]]["spec"]
    expect(headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"], "headless service")
    servers = servers_of(f"{PLACE}/haproxy.cfg")
    names = [f"attnd-{i}" for i in range(len(servers))]
    space = yaml.safe_load(read(f"{PLACE}/kustomization.yaml"))["namespace"]
    expect(servers == [(name, f"{name}.{space}.svc.cluster.local:8080") for name in names],
           f"haproxy.cfg: {servers}")
    own = [name for kind, name in objects if kind == "Service" and name in names]
    expect(own == names, f"services are of {own}")
    expect(all(objects["Service", name]["spec"]["publishNotReadyAddresses"] for name in own),
           "a lame duck has no address")
    expect(scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "attnd"},
           "autoscaler: target")
    expect(shards["replicas"] == scaler["minReplicas"] <= scaler["maxReplicas"] == len(names),
           "replicas, autoscaler and servers disagree")
    metric = scaler["metrics"][0]["pods"]["metric"]["name"]
    expect(f'"{metric}"' in read("server/ops/metrics_gauges.c"), f"no metric {metric}")
    expect(scaler["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}, "autoscaler takes shards away")


def servers_of(path):
    return [pair for pair in re.findall(r"(?m)^ +server +(\S+) +(\S+)", read(path)) if ":8080" in pair[1]]


def is_shard(line):
    return re.match(r" +server \S+ \S+:8080", line) is not None


def copy_of(name):
    """A file of HAProxy as it has to be here: that of config/, with the lines of this one's shards."""
    own = [line for line in read(f"{PLACE}/{name}").splitlines() if is_shard(line)]
    lines = read(f"config/haproxy/{name}").splitlines()
    first = next((i for i, line in enumerate(lines) if is_shard(line)), len(lines))
    rest = [line for line in lines if not is_shard(line)]
    return "\n".join(rest[:first] + own + rest[first:]) + "\n"


def check_copies():
    for name in ("haproxy.cfg", "haproxy.lua"):
        expect(read(f"{PLACE}/{name}") == copy_of(name),
               f"{PLACE}/{name} is not config/haproxy/{name} with other shards: tests/kubernetes/manifests.py --copy")


def check_proxy(objects):
    """HAProxy takes the files, where the names of a cluster are an address of this machine."""
    container = workloads(objects)["haproxy"]["spec"]["template"]["spec"]["containers"][0]
    expect({"name": "HAPROXY_ADDRESS", "value": "0.0.0.0"} in container["env"],
           "haproxy listens on its pod's loopback alone")
    expect(all(line.endswith(" tcp-ut 5s") for line in read(f"{PLACE}/haproxy.cfg").splitlines() if is_shard(line)),
           "haproxy.cfg: a shard without tcp-ut")
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("haproxy.cfg", "haproxy.lua"):
            with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
                file.write(re.sub(r" \S+\.svc\.cluster\.local:", " 127.0.0.1:", read(f"{PLACE}/{name}")))
        done = subprocess.run(["/usr/sbin/haproxy", "-c", "-f", os.path.join(scratch, "haproxy.cfg")],
                              capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"haproxy -c: {done.stderr.strip()}")


def copy():
    for name in ("haproxy.cfg", "haproxy.lua"):
        text = copy_of(name)
        with open(os.path.join(services.ROOT, PLACE, name), "w", encoding="utf-8") as file:
            file.write(text)


def check_pods(objects):
    """No privileges, nothing writable but volumes, limits; what is mounted is there."""
    for name, item in workloads(objects).items():
        pod = item["spec"]["template"]["spec"]
        expect(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
               and pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, f"{name}: user")
        expect(pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False, f"{name}: links")
        there = {volume["name"] for volume in pod["volumes"]
                 + [claim["metadata"] for claim in item["spec"].get("volumeClaimTemplates", ())]}
        for container in pod["containers"]:
            expect(container["securityContext"] == {"allowPrivilegeEscalation": False,
                                                    "readOnlyRootFilesystem": True,
                                                    "capabilities": {"drop": ["ALL"]}}, f"{name}: privileges")
            expect("memory" in container["resources"]["limits"], f"{name}: no limit of memory")
            expect({mount["name"] for mount in container["volumeMounts"]} == there, f"{name}: volumes")
            for probe, path in (("readinessProbe", READINESS.get(name, "/readyz")), ("livenessProbe", "/livez")):
                expect(container[probe]["httpGet"] == {"path": path, "port": "http"}, f"{name}: {probe}")


def check_images(objects):
    compose = yaml.safe_load(read("docker-compose.yml"))["services"]
    version = re.search(r'ATTN_VERSION "([^"]+)"', read("include/attn.h"))[1]
    images = yaml.safe_load(read(f"{PLACE}/kustomization.yaml"))["images"]
    expect([image["newTag"] for image in images] == [version], f"the image's tag is not {version}")
    for name, service in (("attnd", "attnd"), ("haproxy", "haproxy")):
        image = workloads(objects)[name]["spec"]["template"]["spec"]["containers"][0]["image"]
        expect(image == compose[service]["image"], f"{name}: image {image} is not docker-compose.yml's")
    user = services.instruction(services.dockerfile(), "USER")
    security = workloads(objects)["attnd"]["spec"]["template"]["spec"]["securityContext"]
    expect(user == [f"{security['runAsUser']}:{security['runAsGroup']}"]
           and security["fsGroup"] == security["runAsGroup"], "users of image and pod differ")


def variables_of(container, scratch):
    """What attnd gets, with paths of this machine; the pod's name is attnd-0."""
    keys = os.path.join(scratch, "keys.json")
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o440), "w", encoding="utf-8") as file:
        json.dump(services.KEYS, file)
    given = services.image_variables(services.dockerfile())
    for pair in container["env"]:
        given[pair["name"]] = pair.get("value", "attnd-0")
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    expect(mounted["state"] == given["ATTN_STATE_DIR"], "the volume is not where the state is")
    expect(given["ATTN_API_KEYS"] == mounted["keys"] + "/keys.json", "the keys are elsewhere")
    at = {mounted["keys"]: scratch, mounted["state"]: scratch, "/models": scratch,
          "/etc/attnd": os.path.join(services.ROOT, "config")}
    os.makedirs(os.path.join(scratch, "models"))
    at["/models"] = os.path.join(scratch, "models")
    return {name: services.on_this_machine(value, at) for name, value in given.items()}


def check_options(attnd, objects):
    """attnd takes the pod's variables and fits the pod's memory; the pod waits for its end."""
    pod = objects["StatefulSet", "attnd"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    memory = container["resources"]["limits"]["memory"]
    limit = int(memory[:-2]) * UNITS[memory[-2:]]
    with tempfile.TemporaryDirectory() as scratch:
        variables = variables_of(container, scratch)
        done = subprocess.run([attnd, "--check", "--memory-limit", str(limit)], env=variables,
                              capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"attnd --check: {done.returncode}: {done.stderr.strip()}")
    options = dict(re.findall(r"(?m)^  (\w+) += (\S+)", done.stdout))
    for option, value in (("instance", "attnd-0"), ("sandbox", "on"), ("host", "0.0.0.0"),
                          ("durability", "journal")):
        expect(options.get(option) == value, f"{option} is {options.get(option)}")
    expect("(memory)" not in done.stdout, "a bound is lowered to fit the pod's memory")
    end = sum(int(options.get(option, 0)) for option in ("lame_duck_s", "drain_timeout_s"))
    expect(pod["terminationGracePeriodSeconds"] >= end + 60, f"the pod does not wait {end} s and a snapshot")
    return len(variables)


def check_kubectl(objects, schema):
    """What kubectl makes of the directory is what the schemas allow."""
    made = subprocess.run(["kubectl", "kustomize", os.path.join(services.ROOT, PLACE)],
                          capture_output=True, text=True, timeout=60, check=False)
    expect(made.returncode == 0, f"kubectl kustomize: {made.stderr.strip()}")
    items = list(yaml.safe_load_all(made.stdout))
    items.append(objects["HorizontalPodAutoscaler", "attnd"])
    for item in items:
        for problem in schemas.problems_of(schema, item):
            expect(False, f"{item['kind']} {item['metadata']['name']}: {problem}")
    said = dry_run.create(items)
    expect(said.count("created (dry run)") == len(items), f"kubectl create --dry-run=client: {said}")
    return len(items)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if sys.argv[1] == "--copy":
        copy()
        return
    objects = documents()
    check_selectors(objects)
    check_shards(objects)
    check_copies()
    check_proxy(objects)
    check_pods(objects)
    check_images(objects)
    variables = check_options(os.path.abspath(sys.argv[1]), objects)
    valid = ""
    if len(sys.argv) == 3:
        schema = schemas.read(sys.argv[2])
        count = check_kubectl(objects, schema)
        valid = f", {count} valid as of {schema['version']} and created in kubectl's dry run"
    for problem in services.problems:
        print("check-kubernetes:", problem)
    print(f"check-kubernetes: {len(objects)} objects{valid}, {variables} variables taken by attnd "
          f"--check: {services.statements} statements, {len(services.problems)} do not hold")
    sys.exit(bool(services.problems))


if __name__ == "__main__":
    main()
