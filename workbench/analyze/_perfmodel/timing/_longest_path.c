/* Walks a graph of points and edges once: when each point comes, along its longest path.

   `engine_python.py` gives the same times where this is not built.

   Only the stable ABI of Python 3.11 is used: one build serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

enum { ORDER, BOUNDS, TARGET, WEIGHT, TIME, ARRAYS };

/* This wraps around as in numpy, where times are beyond 64 bits. */
static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Visits the points in an order that is known, or, with `waiting`, in the one that it finds: a
   point comes when none before it is waited for (Kahn). Returns how many points were reached, or
   -1 where an edge leads out of the graph. */
static Py_ssize_t walk(const Py_buffer *of, int32_t *waiting) {
    int32_t *order = of[ORDER].buf;
    const int32_t *bounds = of[BOUNDS].buf, *target = of[TARGET].buf;
    const int64_t *weight = of[WEIGHT].buf;
    int64_t *time = of[TIME].buf;
    Py_ssize_t points = of[TIME].len / 8, edges = of[WEIGHT].len / 8, found = waiting ? 0 : points;
    for (Py_ssize_t point = 0; waiting && point < points; point++)
        if (waiting[point] == 0) order[found++] = (int32_t)point;
    for (Py_ssize_t head = 0; head < found; head++) {
        int32_t point = order[head];
        if (point < 0 || point >= points || bounds[point] < 0 || bounds[point + 1] > edges) return -1;
        for (int32_t edge = bounds[point]; edge < bounds[point + 1]; edge++) {
            int32_t after = target[edge];
            if (after < 0 || after >= points) return -1;
            int64_t end = sum(time[point], weight[edge]);
            if (end > time[after]) time[after] = end;
            if (waiting && --waiting[after] == 0 && found < points) order[found++] = after;
        }
    }
    return found;
}

static PyObject *pass(PyObject *args, const char *format, int is_first) {
    Py_buffer of[ARRAYS], waits = {0};
    if (is_first ? !PyArg_ParseTuple(args, format, &of[BOUNDS], &of[TARGET], &of[WEIGHT], &waits, &of[ORDER], &of[TIME])
                 : !PyArg_ParseTuple(args, format, &of[ORDER], &of[BOUNDS], &of[TARGET], &of[WEIGHT], &of[TIME]))
        return NULL;
    Py_ssize_t points = of[TIME].len / 8, found = -1;
    if (of[ORDER].len == 4 * points && of[BOUNDS].len == 4 * points + 4 && 2 * of[TARGET].len == of[WEIGHT].len &&
        (!is_first || waits.len == 4 * points)) {
        Py_BEGIN_ALLOW_THREADS
        found = walk(of, is_first ? waits.buf : NULL);
        Py_END_ALLOW_THREADS
    }
    for (int at = 0; at < ARRAYS; at++) PyBuffer_Release(&of[at]);
    if (is_first) PyBuffer_Release(&waits);
    if (found >= 0) return PyLong_FromSsize_t(found);
    PyErr_SetString(PyExc_ValueError, "arrays of points and of edges differ in size, or edges lead out of the graph");
    return NULL;
}

static PyObject *first_pass(PyObject *module, PyObject *args) {
    (void)module;
    return pass(args, "y*y*y*w*w*w*", 1);
}

static PyObject *next_pass(PyObject *module, PyObject *args) {
    (void)module;
    return pass(args, "y*y*y*y*w*", 0);
}

static PyMethodDef METHODS[] = {
    {"first_pass", first_pass, METH_VARARGS, "Fill an order and the times; return how many points were reached."},
    {"next_pass", next_pass, METH_VARARGS, "Fill the times in an order that is known."},
    {NULL, NULL, 0, NULL},
};

static int add_digest(PyObject *module) {
    return PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST);
}

static PyModuleDef_Slot MODULE_SLOTS[] = {{Py_mod_exec, add_digest}, {0, NULL}};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_longest_path", "Longest paths through a graph.", 0, METHODS, MODULE_SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__longest_path(void) { return PyModuleDef_Init(&MODULE); }
