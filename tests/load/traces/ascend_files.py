"""Traces of Ascend NPUs as torch_npu writes them: a bare list, times as texts, lanes by name."""

BASE_US = 1_699_529_623_106_000


def meta(pid, name, tid=0, kind="process_name"):
    return {"name": kind, "pid": pid, "tid": tid, "ph": "M", "args": {"name": name}}


def span(pid, tid, name, start, dur, **args):
    """Make one event; ``start`` in us after the base, with three digits behind the point."""
    return {
        "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{BASE_US + start // 1}.125",
        "dur": dur, "args": {key.replace("_", " "): value for key, value in args.items()},
    }  # fmt: skip


def task(start, dur, name, kind, *, stream=3, connection=0):
    event = span(4, stream, name, start, dur, Task_Type=kind, Stream_Id=stream, Task_Id=start)
    event["args"]["connection_id"] = connection
    return event


def trace_view():
    """Make a step: a product, a copy, a wait, a collective on its stream and in its group."""
    call = span(5, 2, "Node@launch", 110, 9)
    call["args"]["connection_id"] = 19
    return [
        meta(1, "Python"), meta(5, "CANN"), meta(4, "Ascend Hardware"), meta(3, "Communication"),
        meta(6, "Overlap Analysis"), meta(4, "Stream 3", 3, "thread_name"),
        meta(3, "Group 0 Communication", 0, "thread_name"), meta(3, "Plane 0", 1, "thread_name"),
        span(1, 2, "ProfilerStep#4", 50, 700), span(1, 2, "aten::mm", 100, 90), call,
        span(5, 2, "AscendCL@aclrtMalloc", 130, 2),
        {"ph": "s", "bp": "e", "name": "HostToDevice", "id": "19", "pid": 5, "tid": 2,
         "ts": f"{BASE_US + 110}.125", "cat": "HostToDevice"},
        task(200, 100, "MatMulV2", "AI_CORE", connection=19),
        task(310, 20, "MEMCPY_ASYNC", "SDMA_SQE"),
        task(330, 400, "EVENT_WAIT", "EVENT_WAIT_SQE"),
        task(400, 60, "hcom_allReduce__101_0_1", "COMMUNICATION", stream=9),
        span(3, 0, "hcom_allReduce__101_0_1", 400, 60),
        span(3, 1, "Notify_Wait", 401, 50), span(3, 1, "Memcpy", 451, 5),
        span(6, 0, "Computing", 200, 100), span(6, 2, "Communication", 400, 60),
    ]  # fmt: skip
