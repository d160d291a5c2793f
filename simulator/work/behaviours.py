"""Play scripts: what a pod of a plan does at every tick, and the truth about it.

    plan + start ─► phases (training.py, serving.py, notebook.py) ─► Script.play(ticks)

Everything depends only on the plan, the start and the absolute tick.

True states of a held device: `startup` until the framework and the model are loaded; `idle` while
none of the pod's kernels runs on it; `low` and `productive` while they do, by whether its engine is
busy less than 30 % of the tick; `lost` while a job repeats work that a stop had thrown away
(`WorkPlan.replay_s`), or spins in a collective that will never end.

`stop_harms`: stopping the workload now would lose work. For a job this is so while it is unfinished
and not hung, and its kernels run, progress since its last checkpoint is unsaved, or it prepares,
evaluates or writes a checkpoint. For a server it is so while requests are in flight, and in the
half hour before the next request, which would get no answer. For a notebook it is so while a cell
or a terminal's job runs, on the GPU or not; for an idle notebook on a volume it is not (`pvc` = 0:
it always is, after the first use). While a workload starts, a person waits for it, and a stop does
harm. Finished, forgotten, abandoned or hung work has no harm. An idle rank has the `stop_harms` of
its gang.
"""

import math
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from fallow.errors import UsageError
from fallow.gpu_models import GpuModel, read_gpu_models
from simulator.models import STATES, Codes, Marks
from simulator.work import notebook, serving, training
from simulator.work.chance import (
    WORDS,
    Array,
    compute_uniform,
    draw_normal,
    draw_uniform,
    draw_words,
)
from simulator.work.distributions import compute_mean, compute_quantile, compute_value
from simulator.work.kinds import LOW_BELOW, mark_kinds, read_kinds
from simulator.work.plans import WorkPlan, draw_numbers, get_behaviour, read_behaviours
from simulator.work.timeline import Source, Timeline

__all__ = ["PodActivity", "Script", "WorkPlan", "build_script", "read_behaviours", "resume"]

MISSED_S = 1800.0
"""A server stopped this long before its next request would miss the request."""
LEAST_BUSY = 0.0105
"""Level while a kernel runs, above the 1 % up to which the distributions call a pod OFF."""
CONTEXT_MIB = 520.0
"""Memory of a CUDA context before anything is stored in it."""
SERVER_MEMORY = (0.85, 0.92)
"""Servers allocate their share of the memory at once (vLLM's default is 0.9)."""
NOTEBOOK_MEMORY = (0.05, 0.6)
SM_BUSY = (0.75, 1.2)
"""Factor by which SM_ACTIVE of kernels outside training varies from pod to pod."""


class PodActivity(msgspec.Struct, frozen=True):
    """One pod over some ticks: [tick], and [rank, tick] where ranks differ."""

    kind: npt.NDArray[np.int8]
    """[rank, tick], places in `kinds.csv`."""
    busy: Array
    """[rank, tick] share of the tick in which a kernel runs (GR_ENGINE_ACTIVE)."""
    sm: Array
    """[rank, tick] SM_ACTIVE."""
    now: Array
    """[rank, tick] what a gauge of one instant would show of `busy`."""
    memory: Array
    """[rank, tick] share of the device's memory held."""
    state: Codes
    """[rank, tick] places in `STATES`."""
    stop_harms: Marks
    """[tick]"""


class Script:
    """What a pod does: arrays over ticks (seconds since the epoch, in order)."""

    def __init__(self, plan: WorkPlan, start_s: float) -> None:
        self.plan = plan
        self.start_s = start_s
        self.family = get_behaviour(plan).family
        self.numbers = draw_numbers(plan)
        self.model = _find_model(plan.gpu_model)
        if plan.work_s is not None and self.family != "training":
            raise UsageError(
                f"behaviour {plan.behaviour!r} has no work to finish: work_s is {plan.work_s}",
                hint="leave work_s out, or choose a behaviour of the training family",
            )
        self.timeline = Timeline(start_s, _build_source(plan, self.family, self.numbers, start_s))
        first_work = ("pull_s", "load_s")
        self.startup_until_s = start_s + sum(self.numbers[name] for name in first_work)
        self._host: tuple[Array, Array] | None = None

    @cached_property
    def done_s(self) -> float | None:
        """When the pod ends by itself; None = it stays until it is stopped."""
        if self.plan.work_s is None:
            return None
        end = self.timeline.finish()
        return end if self.timeline.kind[-1] == read_kinds().number("done") else None

    def play(self, ticks: Array, ranks: range | None = None) -> PodActivity:
        """Return everything about some of the gang's ranks; this pod's unless named.

        Raises:
            ValueError: the gang has no such rank.
        """
        ranks_chosen = self.plan.own if ranks is None else ranks
        if ranks_chosen.stop > self.plan.ranks:
            raise ValueError(f"rank {ranks_chosen.stop - 1} of a gang of {self.plan.ranks}")
        facts, timeline = read_kinds(), self.timeline
        place, rank = timeline.at(ticks), np.array(ranks_chosen)[:, None]
        kind = self._list_rank_kinds(ticks, place, rank)
        raw = self._words(ticks, ranks_chosen)
        busy = self._busy(kind, timeline.level[place], ticks, raw)
        sm = np.minimum(busy * self._sm[kind], 1.0)
        if self._number("straggle", 1.0) < 1:
            computing = kind == facts.number("compute")
            sm = np.where(computing & (rank > 0), self._waiting * sm, sm)
        sampled = facts.sampled[kind]
        return PodActivity(
            kind=kind,
            busy=busy,
            sm=sm,
            now=np.where(sampled, np.where(compute_uniform(raw) < busy, 1.0, 0.0), busy),
            memory=self._compute_rank_memory(ticks, place, rank, kind),
            state=self._state(ticks, kind, busy),
            stop_harms=self._harm(ticks, place),
        )

    def activity(self, ticks: Array, rank: int = 0) -> Array:
        """Return SM_ACTIVE (0-1) of one rank."""
        return np.asarray(self.play(ticks, range(rank, rank + 1)).sm[0])

    def memory_mib(self, ticks: Array, rank: int = 0) -> Array:
        """Return the MiB that one rank holds of a whole device."""
        place, ranks = self.timeline.at(ticks), np.array([[rank]])
        memory = self._compute_rank_memory(
            ticks, place, ranks, self._list_rank_kinds(ticks, place, ranks)
        )
        return np.asarray(memory[0] * self.memory_of_device_mib)

    def idle_held(self, ticks: Array) -> Marks:
        """Return whether the pod holds its devices and none of its kernels runs on any."""
        at = read_kinds().state[self.timeline.kind_at(ticks)]
        marks: Marks = at == STATES.index("idle")
        return marks

    def stop_harms(self, ticks: Array) -> Marks:
        """Return whether a stop would lose work (see the module's docstring)."""
        return self._harm(ticks, self.timeline.at(ticks))

    def active(self, ticks: Array) -> Marks:
        """Return whether it works, on a GPU or a host, or starts: a stop would interrupt it."""
        return np.asarray(read_kinds().stop_harms[self.timeline.kind_at(ticks)])

    def used(self, at_s: float) -> bool:
        """Return whether this notebook was used since its start: then it may have files."""
        return self._ran(at_s, "cell", "cpu cell", "terminal", "terminal cpu")

    def kernel_memory(self, at_s: float) -> bool:
        """Return whether a kernel holds values that no file has: a cell has run since the start."""
        return self._ran(at_s, "cell", "cpu cell")

    def checkpoints(self, since_s: float, until_s: float) -> list[float]:
        """Return when checkpoints were finished in [since, until)."""
        self.timeline.grow(until_s)
        after = np.flatnonzero(self.timeline.kind == read_kinds().number("checkpoint")) + 1
        ends = self.timeline.begin[after[after < len(self.timeline.begin)]]
        return [float(end) for end in ends if since_s <= end < until_s]

    def unsaved_s(self, at_s: float) -> float:
        """Return the seconds of work at full speed that a stop at a time would destroy.

        Zero for finished work, and for hanging work, which is lost already.
        """
        if self.family != "training":
            return 0.0
        tick = np.array([at_s])
        kind = self.timeline.kind_at(tick)[0]
        if kind in {read_kinds().number(name) for name in ("idle", "spin", "done")}:
            return 0.0
        return float((self.timeline.progress_at(tick) - self.timeline.saved_at(tick))[0])

    def kernel_busy(self, ticks: Array) -> Marks | None:
        """Return whether a Jupyter kernel executes; None = this is no notebook."""
        if self.family != "notebook":
            return None
        return self._is(self.timeline.kind_at(ticks), "cell", "cpu cell")

    def kernel_last(self, ticks: Array) -> Array | None:
        """Return the kernel's last activity (epoch s): cells show no activity while they run."""
        return self._last(ticks, "cell", "cpu cell")

    def terminal_last(self, ticks: Array) -> Array | None:
        """Return the terminal's last activity (epoch s); None = there is no terminal."""
        if not self._number("terminal", 0.0):
            return None
        return self._last(ticks, "terminal", "terminal cpu")

    def server_last(self, ticks: Array) -> Array | None:
        """Return the notebook server's last activity: an open tab's polls count as activity."""
        kernel, terminal = self.kernel_last(ticks), self.terminal_last(ticks)
        if kernel is None:
            return None
        if self.numbers["tab"]:
            return np.maximum(ticks, self.start_s)
        return kernel if terminal is None else np.maximum(kernel, terminal)

    def requests_running(self, ticks: Array) -> Array | None:
        """Return the requests in flight; None = the pod serves nothing."""
        if self.family != "serving":
            return None
        # A server that hangs keeps its requests.
        serves = self._is(self.timeline.kind_at(ticks), "serve", "burst", "spin")
        raw = draw_words(self.plan.seed, "requests", ticks, 1)[0]
        return np.where(serves, 1 + np.floor(compute_uniform(raw) * self.numbers["rps"]), 0.0)

    def requests_total(self, ticks: Array) -> Array | None:
        """Return the requests served since the start; None = the pod serves nothing."""
        if self.family != "serving":
            return None
        return np.floor(self.timeline.progress_at(ticks))

    def cpu_cores(self, ticks: Array) -> Array:
        """Return the CPU cores that the pod uses, all its devices together."""
        number = self._draw_host(ticks)
        cores = self._of_kind(ticks, "cpu_cores") * len(self.plan.own)
        return cores * (0.8 + 0.4 * number) + 0.002 + 0.006 * number

    def cpu_throttled(self, ticks: Array) -> Array:
        """Return the share of the CFS periods in which the pod's CPU is throttled."""
        waits = self._is(self.timeline.kind_at(ticks), "input")
        return np.where(waits, self._number("throttled", 0.0), 0.0)

    def net(self, ticks: Array) -> tuple[Array, Array]:
        """Return the network bytes per second that the pod receives and sends."""
        number = self._draw_host(ticks)
        chatter = 200.0 + 500.0 * number + 1200.0 * self._number("tab", 0.0)
        received, sent = (self._of_kind(ticks, f"net_{way}_bps") for way in ("rx", "tx"))
        wave = 0.7 + 0.6 * number
        return received * wave + chatter, sent * wave + 0.5 * chatter

    def _draw_host(self, ticks: Array) -> Array:
        """Return a number in [0, 1) for each tick, by which cores and network use vary.

        The last ones are kept for the very same array, as `Timeline.at` does.
        """
        latest = self._host
        if latest is None or latest[0] is not ticks:
            raw = draw_words(self.plan.seed, "host", ticks, 1)[0]
            latest = self._host = ticks, compute_uniform(raw)
        return latest[1]

    @property
    def memory_of_device_mib(self) -> float:
        """MiB of one whole device of the plan's model."""
        return self.model.memory_gib * 1024

    @cached_property
    def _memory(self) -> float:
        wanted = self.numbers["memory"]
        if not math.isnan(wanted):
            return wanted
        place = draw_uniform(self.plan.seed, "memory")
        if self.family in {"training", "night"}:
            return compute_value("memory", place)
        low, high = SERVER_MEMORY if self.family == "serving" else NOTEBOOK_MEMORY
        return low + (high - low) * place

    @cached_property
    def _sm(self) -> Array:
        """SM_ACTIVE per busy time by kind, this pod's own."""
        place = draw_uniform(self.plan.seed, "sm")
        low, high = SM_BUSY
        ratio = read_kinds().ratios["sm"] * np.where(
            read_kinds().ratios["jitter"] < 0, low + (high - low) * place, 1.0
        )
        # The place that drew the engine's level: Acme's quantiles of both, paired.
        paired = draw_uniform(self.plan.seed, "busy")
        ratio[read_kinds().number("compute")] = compute_value("sm_active", paired) / compute_value(
            "gpu_util", paired
        )
        return ratio

    @property
    def _waiting(self) -> float:
        """SM_ACTIVE of ranks that wait for a straggler, relative to working ones."""
        pace = self._number("straggle", 1.0)
        return pace + (1 - pace) * float(read_kinds().ratios["sm"][read_kinds().number("spin")])

    def _number(self, name: str, default: float) -> float:
        return self.numbers.get(name, default)

    def _list_rank_kinds(
        self, ticks: Array, place: npt.NDArray[np.intp], rank: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.int8]:
        """Return the kind of phase [rank, tick] of ranks [rank, 1] of the gang."""
        facts, timeline = read_kinds(), self.timeline
        kind = np.repeat(timeline.kind[place][None, :], len(rank), axis=0)
        # A rank without work has joined the gang: its context is open, and it runs nothing.
        kind[self._mark_unused(rank) & facts.computes[kind]] = facts.number("idle")
        kind = self._waiting_kind(kind, rank)
        left = ticks - timeline.begin[place] >= self._number("left_after_s", math.inf)
        last = rank == self.plan.ranks - 1
        kind[left & last & (kind == facts.number("spin"))] = facts.number("idle")
        return kind

    def _compute_rank_memory(
        self,
        ticks: Array,
        place: npt.NDArray[np.intp],
        rank: npt.NDArray[np.intp],
        kind: npt.NDArray[np.int8],
    ) -> Array:
        """Return the share of the device's memory [rank, tick] that ranks hold."""
        context = CONTEXT_MIB / self.memory_of_device_mib
        whole = np.where(self._mark_unused(rank), context, self._memory)
        return np.asarray(whole * self._memory_share(ticks, place, kind))

    def _mark_unused(self, rank: npt.NDArray[np.intp]) -> Marks:
        marks: Marks = rank >= self.plan.ranks - self._number("idle_ranks", 0.0)
        return marks

    def _words(self, ticks: Array, ranks_chosen: range) -> npt.NDArray[np.uint64]:
        """Return random words of each rank's own, four ranks to a stream."""
        streams = range(ranks_chosen.start // WORDS, -(-ranks_chosen.stop // WORDS))
        streams_words = [draw_words(self.plan.seed, f"ranks {n}", ticks, WORDS) for n in streams]
        skip = ranks_chosen.start - streams.start * WORDS
        return np.concatenate(streams_words)[skip : skip + len(ranks_chosen)]

    def _busy(
        self, kind: npt.NDArray[np.int8], level: Array, ticks: Array, raw: npt.NDArray[np.uint64]
    ) -> Array:
        """Return the levels as they vary from tick to tick; all ranks of a server have the same."""
        facts = read_kinds()
        jitter = facts.ratios["jitter"][kind]
        steady = level + draw_normal(raw) * np.maximum(jitter, 0)
        if (jitter < 0).any():
            common = draw_words(self.plan.seed, "ticks", ticks, 1)[0]
            ratio = compute_quantile("on_ratio", compute_uniform(common)) / compute_mean("on_ratio")
            steady = np.where(jitter < 0, level * ratio, steady)
        return np.where(facts.computes[kind], np.clip(steady, LEAST_BUSY, 1.0), 0.0)

    def _memory_share(
        self, ticks: Array, place: npt.NDArray[np.intp], kind: npt.NDArray[np.int8]
    ) -> Array:
        """Return the share of the pod's memory held: it grows while the model is loaded."""
        facts = read_kinds()
        loaded = (ticks - self.timeline.begin[place]) / self.numbers["load_s"]
        share = np.where(kind == facts.number("load"), np.clip(loaded, 0.02, 1.0), 1.0)
        return np.where(facts.context[kind], share, 0.0)

    def _state(self, ticks: Array, kind: npt.NDArray[np.int8], busy: Array) -> Codes:
        state = read_kinds().state[kind]
        productive, low, lost = (STATES.index(name) for name in ("productive", "low", "lost"))
        state = np.where((state == productive) & (busy < LOW_BELOW), low, state)
        if self.plan.replay_s:
            again = self.timeline.progress_at(ticks) < self.plan.replay_s
            state = np.where(again & read_kinds().computes[kind], lost, state)
        return state.astype(np.int16)

    def _harm(self, ticks: Array, place: npt.NDArray[np.intp]) -> Marks:
        timeline = self.timeline
        kind = timeline.kind[place]
        marks = read_kinds().stop_harms[kind]
        if self.family == "serving":
            # Runs alternate, so the phase after an OFF run is the next request's.
            timeline.grow(float(ticks[-1]) + MISSED_S if len(ticks) else self.start_s)
            following = np.minimum(place + 1, len(timeline.begin) - 1)
            soon = timeline.begin[following] - ticks <= MISSED_S
            marks |= soon & (following > place) & (timeline.level[following] > 0)
        if self.family == "notebook" and not self.numbers["pvc"]:
            used = np.maximum.accumulate(timeline.level > 0)
            marks |= used[place]
        return marks

    def _ran(self, at_s: float, *names: str) -> bool:
        if self.family != "notebook":
            return False
        self.timeline.grow(at_s)
        before = self.timeline.kind[self.timeline.begin < at_s]
        return bool(self._is(before, *names).any())

    def _is(self, kind: npt.NDArray[np.int8], *names: str) -> Marks:
        # One look-up per tick: a tenth of the time of np.isin.
        return mark_kinds(names)[kind]

    def _last(self, ticks: Array, *names: str) -> Array | None:
        if self.family != "notebook":
            return None
        self.timeline.at(ticks)
        marks = self._is(self.timeline.kind, *names)
        last = notebook.find_edges_before(self.timeline.begin, marks, ticks, self.startup_until_s)
        # A starting server has no activity of later requests.
        return np.minimum(last, np.maximum(ticks, self.start_s))

    def _of_kind(self, ticks: Array, ratio: str) -> Array:
        kind = self.timeline.kind_at(ticks)
        return read_kinds().ratios[ratio][self._waiting_kind(kind, np.array(self.plan.first_rank))]

    def _waiting_kind(
        self, kind: npt.NDArray[np.int8], rank: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.int8]:
        """Return the kinds of ranks: where the first one evaluates or saves, the others wait."""
        facts = read_kinds()
        waits = (rank > 0) & self._is(kind, "evaluate", "host save")
        return np.where(waits, np.int8(facts.number("barrier")), kind)


def build_script(plan: WorkPlan, start_s: float) -> Script:
    """Return what a pod of this plan does when it starts at a time (epoch s).

    Raises:
        UsageError: no such behaviour, parameter or GPU model; `work_s` for work that never ends.
    """
    return Script(plan, start_s)


def resume(script: Script, stopped_s: float) -> WorkPlan:
    """Return the plan of a job that continues from its last checkpoint after a stop.

    The work since the checkpoint is repeated: those seconds are `lost`. A hang was an accident and
    does not occur again.
    """
    plan = script.plan
    if script.family != "training":
        return plan
    tick = np.array([stopped_s])
    saved = float(script.timeline.saved_at(tick)[0])
    lost = float(script.timeline.progress_at(tick)[0]) - saved
    left = None if plan.work_s is None else max(plan.work_s - saved, 1.0)
    return msgspec.structs.replace(
        plan,
        work_s=left,
        replay_s=max(lost, plan.replay_s - saved, 0.0),
        params={**plan.params, "hang_after_s": math.inf},
    )


def _build_source(plan: WorkPlan, family: str, values: dict[str, float], start_s: float) -> Source:
    if family == "training":
        return training.run_training(plan.seed, values, plan.work_s)
    if family == "night":
        return training.run_night_job(plan.seed, values, start_s)
    if family == "serving":
        return serving.run_serving(plan.seed, values, start_s)
    return notebook.run_notebook(plan.seed, values, start_s)


def _find_model(name: str) -> GpuModel:
    for model in read_gpu_models():
        if model.gpu_model == name:
            return model
    names = ", ".join(model.gpu_model for model in read_gpu_models())
    raise UsageError(f"no GPU model called {name!r}", hint=f"there are: {names}")
