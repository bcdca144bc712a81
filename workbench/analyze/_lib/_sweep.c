/* Measures how much of windows of time is covered by intervals of several levels, in one pass.

   `intervals.py` gives the same times with numpy, in more passes over memory, where this is not
   built, or rows or windows do not stand in order of time; this file decides nothing by itself.

   Only the stable ABI of Python 3.11 is used: one build serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

enum { LEVEL, BEGIN, LASTING, START, END, COVERED, ARRAYS };
enum { MOST_LEVELS = 8 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* These wrap around as in numpy, where times are beyond 64 bits. */
static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static int in_order(const int64_t *start, const int64_t *end, Py_ssize_t windows) {
    for (Py_ssize_t at = 0; at < windows; at++)
        if (end[at] < start[at] || (at > 0 && start[at] < end[at - 1])) return 0;
    return 1;
}

/* Adds to row k of `covered`, per window, the time in which an interval of level k or below runs.
   Returns 0 where an interval begins before the one in front of it: then `covered` is of no use. */
static int sweep(const Py_buffer *of, Py_ssize_t rows, Py_ssize_t windows, int levels) {
    const int8_t *level = of[LEVEL].buf;
    const int64_t *begin = of[BEGIN].buf, *lasting = of[LASTING].buf;
    const int64_t *start = of[START].buf, *end = of[END].buf;
    int64_t *covered = of[COVERED].buf, before = INT64_MIN, reach[MOST_LEVELS];
    Py_ssize_t first[MOST_LEVELS] = {0}; /* the first window that does not end before */
    for (int at = 0; at < MOST_LEVELS; at++) reach[at] = INT64_MIN;
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (level[row] < 0 || level[row] >= levels) continue;
        if (begin[row] < before) return 0;
        before = begin[row];
        int64_t finish = sum(begin[row], lasting[row]);
        for (int at = level[row]; at < levels; at++) {
            /* Only what goes beyond all intervals before counts. */
            int64_t from = larger(begin[row], reach[at]);
            if (finish <= from) continue;
            reach[at] = finish;
            while (first[at] < windows && end[first[at]] <= from) first[at]++;
            int64_t *of_level = covered + at * windows;
            for (Py_ssize_t window = first[at]; window < windows && start[window] < finish; window++) {
                int64_t shared = difference(smaller(finish, end[window]), larger(from, start[window]));
                of_level[window] = sum(of_level[window], shared);
            }
        }
    }
    return 1;
}

static PyObject *cover(PyObject *module, PyObject *args) {
    Py_buffer of[ARRAYS];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*", &of[LEVEL], &of[BEGIN], &of[LASTING], &of[START], &of[END], &of[COVERED]))
        return NULL;
    Py_ssize_t rows = of[LEVEL].len, windows = of[START].len / 8;
    Py_ssize_t levels = windows ? of[COVERED].len / 8 / windows : 0;
    int fits = of[BEGIN].len == rows * 8 && of[LASTING].len == rows * 8 && of[START].len == windows * 8 &&
               of[END].len == windows * 8 && of[COVERED].len == levels * windows * 8 && levels <= MOST_LEVELS;
    int done = 0;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        done = in_order(of[START].buf, of[END].buf, windows) && sweep(of, rows, windows, (int)levels);
        Py_END_ALLOW_THREADS
    } else PyErr_SetString(PyExc_ValueError, "arrays of rows, of windows, and of levels by windows differ in size");
    for (int at = 0; at < ARRAYS; at++) PyBuffer_Release(&of[at]);
    return fits ? PyBool_FromLong(done) : NULL;
}

static PyMethodDef METHODS[] = {
    {"cover", cover, METH_VARARGS,
     "Measure the time covered per level and window; False if rows or windows are not in order."},
    {NULL, NULL, 0, NULL},
};

static int add_digest(PyObject *module) {
    return PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST);
}

static PyModuleDef_Slot MODULE_SLOTS[] = {{Py_mod_exec, add_digest}, {0, NULL}};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_sweep", "One pass over intervals and windows.", 0, METHODS, MODULE_SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sweep(void) { return PyModuleDef_Init(&MODULE); }
