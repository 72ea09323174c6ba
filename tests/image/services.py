#!/usr/bin/env python3
"""services.py: docker-compose.yml, the Dockerfile and what they mount, without a container engine.

    tests/image/services.py build/attnd      checks; the last line has the figures
    tests/image/services.py --flags          prints the service's flags of `podman run`, one a line

`attnd --check` runs with exactly the variables that the Dockerfile and docker-compose.yml give to the
service, where the paths of the container are those of this machine that are mounted there.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECKPOINT = os.path.join(ROOT, "tests/golden/llama_gqa/model")
KEYS = {"keys": [{"name": "anna", "key": "0123456789abcdef0123456789abcdef", "scopes": ["infer"]}]}
BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
problems = []
statements = 0


def expect(holds, what):
    """Counts a statement, and notes it where it does not hold."""
    global statements
    statements += 1
    if not holds:
        problems.append(what)


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def resolved(value, variables):
    """A value of the file with ${NAME:-default} replaced, as both composes do it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: variables.get(m[1]) or m[2], str(value))


def stages():
    """The Dockerfile's stages by their names, the last without one, as lists of (name, text)."""
    text = re.sub(r"(?m)^ *#.*\n", "", read("Dockerfile")).replace("\\\n", " ")
    found = {}
    for name, rest in re.findall(r"(?m)^([A-Z]+)[ \t]+(.*\S)", text):
        if name == "FROM":
            stage = found.setdefault((rest.split(" AS ") + [""])[1], [])
            stage.append((name, rest))
        elif found:
            stage.append((name, rest))
    return found


def dockerfile():
    """Instructions of the stages that the image is made of."""
    found = stages()
    return found["runtime"] + found[""]


def image_variables(lines):
    pairs = " ".join(text for name, text in lines if name == "ENV")
    return dict(pair.split("=", 1) for pair in pairs.split())


def instruction(lines, wanted):
    return [text for name, text in lines if name == wanted]


def with_keys(text):
    """docker-compose.yml edited as its comments say, for callers with keys."""
    kept = [line for line in text.splitlines() if "ATTN_ALLOW_UNAUTHENTICATED" not in line]
    return "\n".join(re.sub(r"# (ATTN_API_KEYS|- \./config/keys)", r"\1", line) for line in kept)


def mounts(service, scratch):
    """Paths of the container and what is mounted there: a directory of this machine, or a volume."""
    at = {}
    for volume in service["volumes"]:
        source, target = resolved(volume, {}).split(":")[:2]
        if source.startswith("./"):
            at[target] = os.path.join(ROOT, source)
        else:
            at[target] = os.path.join(scratch, source)
            os.makedirs(at[target], exist_ok=True)
    return at


def on_this_machine(value, at):
    for target in sorted(at, key=len, reverse=True):
        if value == target or value.startswith(target + "/"):
            return at[target] + value[len(target):]
    return value


def expect_accepted(attnd, what, service, models=None):
    """The service's environment is accepted, and says what it is meant to say."""
    with tempfile.TemporaryDirectory() as scratch:
        at = mounts(service, scratch)
        os.mkdir(os.path.join(scratch, "keys"))
        keys = os.path.join(scratch, "keys", "keys.json")
        with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            json.dump(KEYS, file)
        expect("/etc/attnd/keys" in at or "ATTN_API_KEYS" not in service["environment"], f"{what}: no directory of keys")
        at["/etc/attnd/keys"] = os.path.dirname(keys)
        at["/models"] = models or at["/models"]
        given = {**image_variables(dockerfile()), **service["environment"]}
        variables = {name: on_this_machine(resolved(value, {}), at) for name, value in given.items()}
        memory = resolved(service["mem_limit"], {})
        limit = int(memory[:-1]) * BYTES[memory[-1]]
        done = subprocess.run([attnd, "--check", "--memory-limit", str(limit)], env=variables,
                              capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"{what}: attnd --check: {done.returncode}: {done.stderr.strip()}")
    for option, value in (("durability", "journal"), ("sandbox", "on"), ("host", "0.0.0.0"),
                          ("instance", given.get("ATTN_INSTANCE"))):
        expect(value is None or re.search(rf"(?m)^  {option} += {re.escape(value)} +\(variable\)", done.stdout),
               f"{what}: {option} is not {value} by a variable")
    seconds = dict(re.findall(r"(?m)^  (\w+_s) += (\d+)", done.stdout))
    end = sum(int(seconds.get(option, 0)) for option in ("lame_duck_s", "drain_timeout_s"))
    expect(int(service["stop_grace_period"].rstrip("s")) >= end + 20,
           f"{what}: is killed before {end} s and a snapshot are over")
    names = re.findall(r"(?m)^  (\w+): (?:random|\S+),", done.stdout)
    wanted = {"mha", "gqa", "demo"} | ({"llama"} if models else set())
    expect(done.returncode != 0 or wanted <= set(names), f"{what}: models are {names}")
    return len(variables)


def check_attnd(attnd, text):
    """Both forms of the file, and a checkpoint in config/models."""
    count = 0
    for form, edited in (("", text), (" with keys", with_keys(text))):
        services = yaml.safe_load(edited)["services"]
        for name in ["attnd"] + shards(services):
            count += expect_accepted(attnd, name + form, services[name])
    with tempfile.TemporaryDirectory() as models:
        shutil.copytree(CHECKPOINT, os.path.join(models, "llama"))
        count += expect_accepted(attnd, "a checkpoint in config/models",
                                 yaml.safe_load(text)["services"]["attnd"], models)
    return count


def shards(services):
    """Names of the services of profile `cluster` that are attnd."""
    return [name for name, service in services.items()
            if "cluster" in service.get("profiles", ()) and service["image"] == "attnd"]


def volumes_of(service):
    """Paths of the container that are on volumes with a name, and the name of each."""
    pairs = (resolved(volume, {}).split(":")[:2] for volume in service["volumes"])
    return {target: source for source, target in pairs if not source.startswith("./")}


def check_cluster(compose):
    """Each shard is what its line `server` in haproxy.cfg says, and keeps its sessions to itself."""
    services = compose["services"]
    names = shards(services)
    servers = [pair for pair in re.findall(r"(?m)^ +server +(\S+) +(\S+)", read("config/haproxy/haproxy.cfg"))
               if ":8080" in pair[1]]
    expect(sorted(servers) == sorted((services[name]["environment"]["ATTN_INSTANCE"],
                                      f"{services[name]['hostname']}:8080") for name in names),
           f"haproxy.cfg: servers are {servers}, services {names}")
    expect(all(services[name]["hostname"] == name for name in names), "compose: hosts of shards")
    expect(services["haproxy"]["depends_on"] == names, "compose: haproxy waits for other shards")
    expect(services["haproxy"]["environment"] == {"HAPROXY_ADDRESS": "0.0.0.0"},
           "compose: haproxy listens on its container's loopback alone")
    states = [volumes_of(services[name])["/var/lib/attnd"] for name in ["attnd"] + names]
    expect(len(set(states)) == len(names) + 1, f"compose: services share a state: {states}")
    for name in names:
        weights = services[name]["environment"]["ATTN_WEIGHTS_CACHE"]
        expect(volumes_of(services[name])[weights] == "weights", f"{name}: has weights of its own")
        expect(f" {weights}" in " ".join(instruction(dockerfile(), "RUN")),
               f"Dockerfile: {weights} does not belong to user 65532")
        expect(services[name]["environment"]["ATTN_ALLOWED_HOSTS"] == "haproxy",
               f"{name}: refuses containers that ask for haproxy:8080")
        expect("ports" not in services[name], f"{name}: is reached beside haproxy")
        expect(services[name]["profiles"] == services["haproxy"]["profiles"] == ["cluster"],
               f"{name}: is of another profile than haproxy")


def check_image(service):
    lines = dockerfile()
    version = re.search(r'ATTN_VERSION "([^"]+)"', read("include/attn.h"))[1]
    expect(f"VERSION={version}" in instruction(lines, "ARG"),
           f"Dockerfile: ARG VERSION is not {version}, which include/attn.h says")
    expect(instruction(lines, "USER") == ["65532:65532"], "Dockerfile: USER is not 65532:65532")
    state = image_variables(lines).get("ATTN_STATE_DIR")
    expect(instruction(lines, "VOLUME") == [state], f"Dockerfile: VOLUME is not {state}")
    expect(f"install -d -m 700 -o 65532 -g 65532 {state}" in " ".join(instruction(lines, "RUN")),
           f"Dockerfile: {state} does not belong to user 65532")
    expect(f"sessions:{state}" in service["volumes"], f"compose: no named volume at {state}")
    expect(float(resolved(service["cpus"], {})) == 0, "compose: cpus has a default")
    check = service["healthcheck"]
    given = (f"--interval={check['interval']} --timeout={check['timeout']} --start-period={check['start_period']} "
             f"--retries={check['retries']} CMD {json.dumps(check['test'][1:])}")
    expect([" ".join(text.split()) for text in instruction(lines, "HEALTHCHECK")] == [given],
           f"Dockerfile: the health check is not the service's: {given}")
    expect(int(check["interval"].removesuffix("ms")) < 2000, "compose: a container is healthy after 2 s or more")
    labels = " ".join(instruction(lines, "LABEL"))
    for label in ("title", "description", "licenses", "version", "revision", "source"):
        expect(f"org.opencontainers.image.{label}=" in labels, f"Dockerfile: no label {label}")


def check_stages():
    """The daemon is compiled by the machine that builds, for the one that runs; the program that prints
    /openapi.json runs where it is built."""
    found = stages()
    expect(list(found) == ["runtime", "build", ""], f"Dockerfile: stages are {list(found)}")
    bases = [found[name][0][1] for name in found]
    expect(bases == ["debian:bookworm-slim AS runtime",
                     "--platform=${BUILDPLATFORM:-linux/amd64} debian:bookworm-slim AS build",
                     "runtime"], f"Dockerfile: stages are from {bases}")
    expect("TARGETARCH" in instruction(found["build"], "ARG"), "Dockerfile: no target to build for")
    install, make = (text for name, text in found["build"] if name == "RUN")
    libraries = re.findall(r"(?<![\w-])[\w-]+-dev\S*", install)
    of_target = [library for library in libraries if library.endswith(':$arch"')]
    expect(of_target and set(libraries) - set(of_target) == {'libc6-dev:$own"', 'libjansson-dev:$own"'},
           f"Dockerfile: not all are libraries of the target, but what prints /openapi.json needs: {libraries}")
    expect('CC="$gnu-gcc"' in make and 'AR="$gnu-ar"' in make, "Dockerfile: not the target's compiler")
    expect(make.rstrip().endswith('"$gnu-strip" build/attnd'), "Dockerfile: the daemon has its debug symbols")


def check_services(compose):
    """Every service is held in, reached from this machine only, and of a fixed version."""
    for name, service in compose["services"].items():
        expect(service.get("read_only") is True, f"{name}: its root is writable")
        expect(service.get("cap_drop") == ["ALL"], f"{name}: capabilities")
        expect(service.get("security_opt") == ["no-new-privileges:true"], f"{name}: new privileges")
        expect("pids_limit" in service and "mem_limit" in service, f"{name}: no limits")
        expect(service.get("memswap_limit") == service.get("mem_limit"), f"{name}: takes swap beyond its memory")
        expect("privileged" not in service and "cap_add" not in service, f"{name}: privileges")
        for port in service.get("ports", ()):
            expect(port.startswith("127.0.0.1:"), f"{name}: port {port} is open to other machines")
        expect(service["image"] == "attnd" or re.search(r":v?\d+\.\d+\.\d+$", service["image"]),
               f"{name}: image {service['image']} is of no fixed version")
        expect(service["logging"]["driver"] == "json-file"
               and {"max-size", "max-file"} <= set(service["logging"]["options"]), f"{name}: its log has no bound")
        for volume in service.get("volumes", ()):
            source = resolved(volume, {}).split(":")[0]
            there = os.path.exists(os.path.join(ROOT, source)) if source.startswith("./") \
                else source in compose["volumes"]
            expect(there, f"{name}: nothing to mount: {source}")
            # A rename leaves a file that is mounted by itself as it was; this one is read at the start alone.
            expect(os.path.isdir(os.path.join(ROOT, source)) or source in compose["volumes"]
                   or source == "./config/attnd.json", f"{name}: {source} is mounted as a file")


def check_builder(compose):
    """One service builds, and every other that runs the image waits for it; none asks a registry."""
    own = {name: service for name, service in compose["services"].items() if service["image"] == "attnd"}
    expect([name for name, service in own.items() if "build" in service] == ["image"], "compose: not one builder")
    expect(own["image"]["tmpfs"] == instruction(dockerfile(), "VOLUME"), "compose: the builder leaves volumes")
    for name, service in own.items():
        expect(service["pull_policy"] == "never", f"{name}: asks a registry for the image")
        expect(name == "image" or service["depends_on"] == {"image": {"condition": "service_completed_successfully"}},
               f"{name}: does not wait for the image")


def check_observability(compose):
    """Prometheus asks the services that there are, and Grafana asks Prometheus."""
    prometheus = yaml.safe_load(read("config/prometheus/prometheus.yml"))
    targets = [target for job in prometheus["scrape_configs"]
               for static in job["static_configs"] for target in static["targets"]]
    expect(targets == ["attnd:8080"], f"prometheus.yml: targets are {targets}")
    found = [name for job in prometheus["scrape_configs"]
             for search in job["dns_sd_configs"] for name in search["names"]]
    expect(found == shards(compose["services"]), f"prometheus.yml: asks the shards {found}")
    hosts = compose["services"]["attnd"]["environment"].get("ATTN_ALLOWED_HOSTS", "").split(",")
    expect({target.split(":")[0] for target in targets} <= set(hosts),
           f"compose: attnd refuses Prometheus, which asks for {targets}")
    for rules in prometheus["rule_files"]:
        path = os.path.join("config/prometheus", rules)
        expect(os.path.exists(os.path.join(ROOT, path)), f"prometheus.yml: no file {path}")
    sources = yaml.safe_load(read("config/grafana/provisioning/datasources/prometheus.yml"))
    expect([source["url"] for source in sources["datasources"]] == ["http://prometheus:9090"],
           "datasources: not the service prometheus")
    grafana = compose["services"]["grafana"]
    at = {volume.split(":")[1]: volume.split(":")[0] for volume in grafana["volumes"]}
    provider = yaml.safe_load(read("config/grafana/provisioning/dashboards/attnd.yml"))
    shown = on_this_machine(provider["providers"][0]["options"]["path"], at)
    expect(os.path.exists(os.path.join(ROOT, shown, "attnd.json")), f"no dashboard in {shown}")
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    expect(on_this_machine(home, at) == os.path.join(shown, "attnd.json"), "home dashboard")


def run_flags(service):
    """What docker-compose.yml says of a container, but for its mounts and ports, as flags."""
    flags = ["--read-only"] if service["read_only"] else []
    flags += [f"--env={name}={resolved(value, {})}"
              for name, value in service["environment"].items()]
    flags += [f"--cap-drop={capability}" for capability in service["cap_drop"]]
    flags += [f"--security-opt={option.split(':')[0]}" for option in service["security_opt"]]
    flags += [f"--tmpfs={mount}" for mount in service["tmpfs"]]
    flags += [f"--memory={resolved(service['mem_limit'], {})}",
              f"--memory-swap={resolved(service['memswap_limit'], {})}", f"--hostname={service['hostname']}",
              f"--pids-limit={service['pids_limit']}",
              f"--stop-timeout={service['stop_grace_period'].rstrip('s')}"]
    flags += [f"--log-driver={service['logging']['driver']}"]
    flags += [f"--log-opt={name}={value}" for name, value in service["logging"]["options"].items()]
    return flags


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = read("docker-compose.yml")
    compose = yaml.safe_load(text)
    if sys.argv[1] == "--flags":
        print("\n".join(run_flags(compose["services"]["attnd"])))
        return
    variables = check_attnd(os.path.abspath(sys.argv[1]), text)
    check_image(compose["services"]["attnd"])
    check_stages()
    check_services(compose)
    check_builder(compose)
    check_cluster(compose)
    check_observability(compose)
    for problem in problems:
        print("check-image:", problem)
    print(f"check-image: {len(compose['services'])} services, {variables} variables taken by attnd "
          f"--check: {statements} statements, {len(problems)} do not hold")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
