/* Cleave's runtime for other programs: load a plan, bind data, step, read metrics, snapshot.
 *
 *   cleave_training *t = cleave_open("gpt.plan", NULL);
 *   if (!t) { fputs(cleave_error(NULL), stderr); return cleave_error_status(NULL); }
 *   cleave_bind(t, "input_ids", ids, sizeof ids);         // a global batch, dense, row-major; or the plan's own data
 *   cleave_metrics m;
 *   while (cleave_step(t, &m) == 0) printf("%lld %g\n", (long long)m.step, m.loss);
 *   cleave_snapshot(t);
 *   cleave_close(t);
 *
 * Functions that return int give 0, or the exit status of `cleave` for the same failure: 1 the input is wrong, 2 wrong
 * use, 4 the run failed; cleave_error says why. After status 4 only cleave_close is of use. A training is used by one
 * thread at a time. Under mpirun, srun or torchrun-style variables every process is one rank and calls the same
 * functions; over TCP with the network's variables, CLEAVE_SECRET above all (docs/reference/launching.md).
 */
#ifndef CLEAVE_RUNTIME_H
#define CLEAVE_RUNTIME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_RUNTIME_VERSION 9
/* The version of the library; it serves programs compiled against the same or a lower one. */
int cleave_runtime_version(void);

typedef struct cleave_training cleave_training;

/* Zero means the default everywhere. */
typedef struct {
  size_t size;           /* sizeof(cleave_options) */
  const char *data;      /* path in place of the recipe's data.path */
  const char *model;     /* the .onnx file to read weights from, if it moved since compiling */
  const char *snapshots; /* folder for cleave_snapshot; one that holds another run's is refused without `resume`
                            or `overwrite` */
  int resume;            /* begin from the newest snapshot in that folder, if there is one */
  int threads;           /* a device */
  double step_timeout;   /* seconds: as `cleave run --step-timeout` */
  /* A plan is a program: it is opened if this user has compiled it here, or by one of these
   * (docs/guide/plans-of-others.md). */
  const char *trust_keys; /* file of public keys; one of them must have signed the plan */
  int trust_code;         /* this plan is trusted, now and later: the caller knows where it comes from */
  int check_weights;      /* as `cleave run --check-weights` */
  int accept_changes;     /* as `cleave run --accept-changes` */
  /* Told at once, on a thread of the library, that another rank ends the step under way, and why. cleave_step gives
   * status 4 when the threads of the step come back; the library ends no process. It calls nothing of the library. */
  void (*on_lost)(const char *why, void *on_lost_data);
  void *on_lost_data;
  int overwrite; /* another run's snapshots in that folder are removed; since version 7 */
  /* Since version 8. The first of them begins where the options of version 7 end, behind their padding. */
  double meeting_timeout; /* seconds: as `cleave run --meeting-timeout` */
  int local_batches;      /* cleave_bind takes this process' part of a batch, see cleave_local_samples */
  int own_snapshots; /* `snapshots` is a folder of this process alone, which gets its part of each snapshot, and all of
                        the one to resume from has to be in it */
} cleave_options;

typedef struct {
  size_t size;  /* sizeof(cleave_metrics), set by the caller */
  int64_t step; /* counted from 1 */
  double loss;
  double grad_norm; /* NaN when the plan does not compute it */
  double learning_rate;
  double step_seconds;
  double samples_per_second;
  double tokens_per_second;
  double tflops_per_device;
  int64_t peak_bytes_per_device;
} cleave_metrics;

/* Loads a trusted plan, reads the parameters this process holds, gets ready to step. Null on failure:
 * cleave_error(NULL). */
cleave_training *cleave_open(const char *plan_path, const cleave_options *options);
void cleave_close(cleave_training *training);

/* Names of the plan's inputs and the bytes of a global batch of each; null, 0 beyond the last. */
const char *cleave_input_name(const cleave_training *training, int index);
int64_t cleave_input_bytes(const cleave_training *training, int index);
/* Its elements, "f32", "bf16", "i64", ...; null beyond the last. */
const char *cleave_input_type(const cleave_training *training, int index);
/* Sizes of a global batch of it, the first `most` of them into `sizes`; returns how many there are, -1 beyond the last.
 */
int cleave_input_shape(const cleave_training *training, int index, int64_t *sizes, int most);
/* Where steps have several shapes, by the recipe's data.lengths or ramp: how many, else 1; and the sizes of a global
 * batch of an input in the step of each, the shortest or first one's first. cleave_input_shape and cleave_input_bytes
 * are the last's. With a ramp cleave_ramped_shape says which one the next step takes, counted from 0; -1: no ramp. */
int cleave_lengths(const cleave_training *training);
int cleave_ramped_shape(const cleave_training *training);
int cleave_input_shape_at(const cleave_training *training, int index, int length, int64_t *sizes, int most);
/* Samples of such a step. An input's array has more, places that stay empty, where the batch does not divide; -1: there
 * is no such length. */
int64_t cleave_batch(const cleave_training *training, int length);
/* Takes an input from the caller's array from the next step on. The array is read during cleave_step, not copied here.
 */
int cleave_bind(cleave_training *training, const char *input, const void *data, int64_t bytes);
/* A step of fewer samples than the plan's: the dimension of an input that counts samples, behind which it is filled up,
 * labels with `*label`, which the loss ignores, where `*is_label` is 1, and others with what they have. -1: it cannot
 * be, and cleave_error tells why. */
int cleave_filled_dimension(cleave_training *training, const char *input, int *is_label, int64_t *label);
/* With options.local_batches all of the above that speaks of a global batch speaks of this process' part of it: the
 * next step's samples with these numbers, in this order, the first `most` of them into `samples`. Returns how many
 * there are; 0: arrays are global batches. Processes with equal numbers have to bind equal arrays, which the first step
 * and every hundredth compare. */
int cleave_local_samples(const cleave_training *training, int64_t *samples, int most);

/* One optimizer step. `metrics` may be null. */
int cleave_step(cleave_training *training, cleave_metrics *metrics);
int64_t cleave_steps_done(const cleave_training *training);
/* The metrics of the latest step in Prometheus' text format, until the next call of this training. Since version
 * 8. */
const char *cleave_prometheus(cleave_training *training);

/* Takes an input of the next cleave_evaluate from the caller's array, a global batch. Since version 8. */
int cleave_bind_evaluation(cleave_training *training, const char *input, const void *data, int64_t bytes);
/* The loss and the recipe's eval.metrics of the arrays that are bound for it; without any of `batches` of the samples
 * that the data holds out, 0: all. With `add` joined to what the evaluation before had seen. Since version 8. */
int cleave_evaluate(cleave_training *training, int64_t batches, int add);
/* The latest evaluation, until the next: {"loss": 0.21, "samples": 512, "metrics": {"accuracy": 0.93}}; null before. */
const char *cleave_evaluation(const cleave_training *training);

/* Persistent tensors: names, and the bytes of the whole (global) tensor; null, 0 beyond the last or for an unknown
 * name. */
const char *cleave_parameter_name(const cleave_training *training, int index);
int64_t cleave_parameter_bytes(const cleave_training *training, const char *name);
/* The same of a persistent tensor; null, -1 for an unknown name. */
const char *cleave_parameter_type(const cleave_training *training, const char *name);
int cleave_parameter_shape(const cleave_training *training, const char *name, int64_t *sizes, int most);
/* Copies the whole tensor, dense. Only when one process runs all devices; otherwise read a snapshot. */
int cleave_read_parameter(cleave_training *training, const char *name, void *out, int64_t bytes);

/* Writes a snapshot, atomically, into the folder of the options. */
int cleave_snapshot(cleave_training *training);

/* Since version 8, for programs that keep data and snapshots elsewhere than in files. */
/* The recipe's data.path in a plan, which may be a URL; "" where it has none. Until the next call on this thread. Null
 * on failure: cleave_error(NULL). */
const char *cleave_data_path(const char *plan_path);
/* Reads all of a snapshot, or of the newest whole one in a folder. Not 0 where it is damaged: cleave_error(NULL). */
int cleave_check_snapshot(const char *path);
/* Numbers of the devices that this process runs, the first `most` of them into `devices`; returns how many there are.
 * The file of a device in a snapshot is rank-0000.safetensors, with its number. */
int cleave_devices(const cleave_training *training, int64_t *devices, int most);
/* All processes of the run call it, and wait for each other: 0 where `failure` is null on all of them; else the failure
 * of one is the error of all. */
int cleave_agree(cleave_training *training, const char *failure);
/* Likewise before each batch of an evaluation by arrays, and once after the last: an error of all where some processes
 * have one more and others have not. */
int cleave_agree_on_more(cleave_training *training, int has_more);

/* Message and status of the last failure on this training; with null, of the last cleave_open of this thread. */
const char *cleave_error(const cleave_training *training);
int cleave_error_status(const cleave_training *training);

#ifdef __cplusplus
}
#endif
#endif
