#pragma once

#include "spec/job_spec.h"
#include "spec/rule.h"

// The one description of the job spec: describe(visitor, struct) calls visitor(key, field, rule, doc) for
// every key in the order of the documentation. The reader (read.h), to_yaml() and json_schema() are visitors;
// nothing else lists keys. A key that needs another to be read first (validation inherits from train) stands
// after it.

namespace trainer::spec {

// Far beyond use; they keep products of counts (batch size × accumulation × nodes × workers) within 64 bits.
constexpr double kMillion = 1e6, kMostAccumulation = 1e5, kMostNodes = 1e4, kMostWorkersPerNode = 1e3;
// Of launch.nnodes, and of launch.redirects and launch.tee.
constexpr const char* kNodesPattern = "[1-9][0-9]{0,4}(:[1-9][0-9]{0,4})?";
constexpr const char* kStreamsPattern = "[0-3]|[0-9]+:[0-3](,[0-9]+:[0-3])*";
constexpr std::string_view kStreamsForm =
    "0, 1, 2 or 3 for all workers, or local_rank:number with commas between, e.g. 0:1,1:3";
constexpr double kMostRows = 1e12;
constexpr double kMostSteps = 1e8;  // learning rates of all steps are one table

template <class V>
void describe(V& v, Job& j) {
  v("name", j.name, anything().also({"run_name", "experiment"}), "Name of the job; names its directory");
  v("seed", j.seed, at_least(0).also({"random_seed", "data_seed"}),
    "Seed of initialization, data order and dropout; the same seed gives the same updates");
  v("output_dir", j.output_dir, anything().also({"output", "save_dir", "out_dir", "work_dir"}),
    "Directory for models, logs and metrics, relative to the working directory; empty: runs/<name>");
}

template <class V>
void describe(V& v, Gpt& g) {
  v("preset", g.preset, anything().also({"flavor", "variant", "size"}),
    "Shape of a known model, over which the keys below count; none: GPT-2's form");
  v("layers", g.layers,
    at_least(1).at_most(1e4).also({"n_layer", "num_hidden_layers", "num_layers", "n_layers"}),
    "Transformer blocks");
  v("heads", g.heads,
    at_least(1).at_most(kMillion).also({"n_head", "num_attention_heads", "num_heads", "n_heads"}),
    "Attention heads");
  v("kv_heads", g.kv_heads, at_least(1).at_most(kMillion).also({"num_key_value_heads", "n_kv_heads"}),
    "Heads of keys and values, a divisor of heads (grouped-query attention); unset: as heads");
  v("hidden_size", g.hidden_size, at_least(1).at_most(kMillion).also({"n_embd", "dim", "d_model"}),
    "Channels of the residual stream");
  v("intermediate_size", g.intermediate_size,
    at_least(1).at_most(kMillion).also({"n_inner", "ffn_dim", "hidden_dim"}),
    "Channels within the MLP; unset: 4 hidden_size");
  v("max_positions", g.max_positions,
    at_least(1).at_most(1e8).in("tokens").also({"n_positions", "n_ctx", "max_position_embeddings"}),
    "Longest sequence that the model takes; unset, without preset: data.max_length");
  v("vocab_size", g.vocab_size, at_least(1).at_most(1e8).in("tokens"),
    "Tokens that the model knows; unset: the tokenizer's");
  v("pad_vocab_to", g.pad_vocab_to,
    at_least(1).at_most(65536).also({"pad_vocab_size_multiple", "make_vocab_size_divisible_by"}),
    "The embedding of a new model has a multiple of so many rows, for speed; the loss knows nothing of those "
    "over");
  v("norm", g.norm, anything().also({"norm_type"}), "Normalization: LayerNorm or RMSNorm");
  v("norm_eps", g.norm_eps, at_least(0).below(1).also({"layer_norm_epsilon", "rms_norm_eps"}),
    "Added to the variance in a normalization");
  v("activation", g.activation, anything().also({"activation_function", "hidden_act"}),
    "Nonlinearity of the MLP");
  v("positions", g.positions, anything().also({"position_embedding_type"}),
    "Positions: an embedding that is learned, or rotations of queries and keys (RoPE)");
  v("rope_theta", g.rope_theta, above(0), "Base of RoPE's wavelengths");
  v("bias", g.bias, anything().also({"mlp_bias", "attention_bias"}), "Whether linear layers have biases");
  v("tie_embeddings", g.tie_embeddings, anything().also({"tie_word_embeddings"}),
    "Whether the output layer's weights are the embedding's");
  v("initializer_range", g.initializer_range, above(0).at_most(1).also({"init_std", "init_scale"}),
    "Standard deviation of a new model's weights; unset: GPT-2's 0.02, which is little for few channels");
}

template <class V>
void describe(V& v, EmbeddingTable& t) {
  v("features", t.features, anything().also({"feature_names"}),
    "Sparse features that look up in this table; empty: the feature of the table's name");
  v("rows", t.rows, at_least(1).at_most(kMostRows).also({"num_embeddings", "cardinality", "hash_size"}),
    "Rows; unset: model.recommender.rows");
  v("dim", t.dim, at_least(1).at_most(65536).also({"embedding_dim"}),
    "Columns; unset: model.recommender.embedding_dim");
  v("pooling", t.pooling, anything().also({"mode", "combiner"}),
    "How the rows of a bag become one; unset: model.recommender.pooling");
  v("dtype", t.dtype, anything().also({"data_type", "weights_precision"}),
    "Type of the weights; unset: model.recommender.table_dtype");
  v("sharding", t.sharding, anything().also({"sharding_type"}),
    "How ranks share the table; unset: parallel.embedding");
}

template <class V>
void describe(V& v, EmbeddingOptimizer& o) {
  v("type", o.type, anything().also({"name", "optim"}),
    "Update rule; rowwise_adagrad keeps one number a row. Only rows that a step looked up change");
  v("lr", o.lr, above(0).also({"learning_rate"}),
    "Peak learning rate, on the job's schedule; unset: optimizer.lr");
  v("eps", o.eps, at_least(0), "Added to the denominator against division by zero");
  v("beta1", o.beta1, at_least(0).below(1), "adam: decay of the mean gradient");
  v("beta2", o.beta2, at_least(0).below(1), "adam: decay of the mean squared gradient");
  v("weight_decay", o.weight_decay, at_least(0).also({"wd"}),
    "Weight decay of the rows that a step looked up, added to the gradient");
  v("stochastic_rounding", o.stochastic_rounding, anything(),
    "Whether fp16 and bf16 weights are rounded up or down by chance, so that small updates are not lost");
}

template <class V>
void describe(V& v, Recommender& r) {
  v("architecture", r.architecture, anything().also({"interaction", "arch"}),
    "dlrm: dot products of all pairs of features; dcnv2: cross layers; deepfm: a factorization machine "
    "beside an "
    "MLP; wide_deep: a linear model beside an MLP");
  v("embedding_dim", r.embedding_dim, at_least(1).at_most(65536).also({"dim", "sparse_feature_size"}),
    "Columns of tables that say none");
  v("bottom_mlp", r.bottom_mlp,
    at_least(1).at_most(kMillion).repeated().also({"arch_mlp_bot", "dense_arch_layer_sizes"}),
    "Channels of the layers over the dense features; dlrm and dcnv2 add one of embedding_dim; unused by "
    "deepfm and "
    "wide_deep");
  v("top_mlp", r.top_mlp,
    at_least(1).at_most(kMillion).repeated().also(
        {"arch_mlp_top", "over_arch_layer_sizes", "deep_mlp", "hidden_units"}),
    "Channels of the layers over all; the output of one channel follows");
  v("cross_layers", r.cross_layers, at_least(1).at_most(1000).also({"dcn_num_layers", "num_cross_layers"}),
    "dcnv2: cross layers");
  v("cross_rank", r.cross_rank, at_least(0).at_most(kMillion).also({"dcn_low_rank_dim", "low_rank"}),
    "dcnv2: rank of the cross layers' matrices; 0: full");
  v("dropout", r.dropout, at_least(0).below(1), "Dropout probability between the layers of top_mlp");
  v("tables", r.tables, anything().also({"embedding_tables", "embeddings"}),
    "Tables by name, where they differ from one table a feature with the keys below");
  v("rows", r.rows, at_least(1).at_most(kMostRows).also({"num_embeddings", "hash_size", "max_ind_range"}),
    "Rows of tables that say none: what ids are hashed to, or the largest vocabulary; unset: as many as the "
    "vocabulary");
  v("pooling", r.pooling, anything().also({"combiner"}), "How the rows of a bag become one");
  v("table_dtype", r.table_dtype, anything().also({"data_type", "weights_precision"}),
    "Type of the tables' weights");
  v("embedding_backend", r.embedding_backend, anything().also({"kernel", "compute_kernel"}),
    "Who looks up and updates: this program's kernels or FBGEMM's; auto: the faster one");
  v("embedding_memory", r.embedding_memory, anything().also({"location", "placement"}),
    "Where tables of GPUs are: their memory, the host's (uvm), or the host's with a cache on the GPU");
  v("cache_load_factor", r.cache_load_factor, above(0).at_most(1),
    "uvm_cached: the cache's size as a fraction of the table");
  v("embedding_optimizer", r.embedding_optimizer, anything().also({"sparse_optimizer"}),
    "How tables are updated");
}

template <class V>
void describe(V& v, Model& m) {
  v("type", m.type, anything().also({"architecture", "model_type", "arch"}), "Kind of model");
  v("pretrained", m.pretrained, anything().also({"model_name_or_path", "path", "checkpoint", "weights"}),
    "Hugging Face directory (config.json, model.safetensors, tokenizer), relative to the working directory");
  v("init", m.init, anything(),
    "pretrained: load the directory's weights; random: take only its config.json and tokenizer");
  v("num_labels", m.num_labels, at_least(1).at_most(kMillion).also({"num_classes", "labels"}),
    "Outputs of the classifier; 1 or more values in regression");
  v("problem_type", m.problem_type, anything().also({"problem", "task"}),
    "What labels mean, and so the loss: cross-entropy, binary cross-entropy per label, or squared error");
  v("hidden_dropout", m.hidden_dropout, at_least(0).below(1).also({"hidden_dropout_prob", "dropout"}),
    "Dropout probability of hidden layers; unset: as in config.json, 0 in a new gpt");
  v("attention_dropout", m.attention_dropout, at_least(0).below(1).also({"attention_probs_dropout_prob"}),
    "Dropout probability of attention weights; unset: as in config.json, 0 in a new gpt");
  v("classifier_dropout", m.classifier_dropout, at_least(0).below(1),
    "Dropout probability before the classifier; unset: as in config.json, else hidden_dropout");
  v("gpt", m.gpt, anything(), "Shape and form of a gpt; unset: as in the pretrained directory's config.json");
  v("recommender", m.recommender, anything().also({"dlrm"}), "Layers and embedding tables of a recommender");
}

template <class V>
void describe(V& v, DataSource& d) {
  v("path", d.path, anything().also({"file", "train_file", "validation_file"}),
    "Table file, relative to the working directory");
  v("format", d.format, anything().also({"type"}),
    "A table's separator (tsv: tab, csv: comma), or what a gpt reads: text, JSON lines, Parquet, or tokens "
    "in the "
    "files of Megatron, nanoGPT or llm.c, or click records: criteo (its columns, without a header) and "
    "records (what "
    "trainer prepare writes); auto: by the file's extension and first bytes");
  v("quoting", d.quoting, anything().also({"quote"}),
    "rfc4180: double quotes enclose a field; none: quotes are text; auto: none for tsv, rfc4180 for csv");
  v("header", d.header, anything().also({"has_header"}), "Whether the first line names the columns");
  v("text", d.text, column().also({"text_column", "sentence", "sentence1", "sentence1_key"}),
    "Column of the text: name, or number from 0; of JSON lines and Parquet the field, unset: text");
  v("text_pair", d.text_pair, column().also({"text2", "sentence2", "sentence2_key", "pair"}),
    "Column of the second text: name, or number from 0; empty: one text");
  v("label", d.label, column().also({"label_column", "labels", "target"}),
    "Column of the label: name, or number from 0");
}

template <class V>
void describe(V& v, TokenizerSource& t) {
  v("type", t.type, anything().also({"name", "kind"}),
    "bpe: byte-level BPE; char: the characters of data.train; byte: raw bytes; auto: what path or "
    "model.pretrained "
    "has");
  v("path", t.path, anything(),
    "Directory with tokenizer.json or vocab.json and merges.txt; empty: model.pretrained, or beside the "
    "tokens");
}

template <class V>
void describe(V& v, Features& f) {
  v("label", f.label, anything().also({"label_column", "target"}), "Column of the click: 0 or 1");
  v("label_threshold", f.label_threshold, anything(),
    "A label of at least this is a click, e.g. 4 of ratings from 1 to 5; unset: labels are 0 and 1");
  v("dense", f.dense, anything().also({"dense_features", "numerical", "continuous"}),
    "Columns of numbers; a name with * stands for all columns that match");
  v("sparse", f.sparse, anything().also({"sparse_features", "categorical"}),
    "Columns of ids; a name with * stands for all columns that match");
  v("group", f.group, anything().also({"group_by", "user"}), "Column whose values grouped_auc groups by");
  v("ids", f.ids, anything().also({"hashing", "id_mapping", "hash"}),
    "Which row an id has: one of its own by a vocabulary fitted on data.train; the number (or hexadecimal "
    "number) "
    "modulo the table's rows; MurmurHash3 of the text modulo the rows; or the number itself");
  v("min_count", f.min_count, at_least(1).at_most(1e12).also({"min_frequency", "frequency_threshold"}),
    "vocabulary: occurrences that give an id a row of its own; rarer ids share row 0");
  v("separator", f.separator, anything().also({"multi_hot_separator"}),
    "Between the ids of a field, where there may be several; empty: one id a field");
  v("weight_separator", f.weight_separator, anything(), "Between an id and its weight; empty: no weights");
  v("dense_transform", f.dense_transform, anything().also({"dense_normalization"}),
    "log: ln(1 + x), of negative numbers 0");
  v("out_of_range", f.out_of_range, anything(),
    "An id that has no row in its table: an error, its number modulo the rows (wrap), or left out (ignore); "
    "the "
    "latter two are counted");
}

template <class V>
void describe(V& v, Data& d) {
  v("train", d.train, anything(), "Training samples");
  v.inherit(d.validation, d.train);
  v("validation", d.validation, anything().also({"dev", "eval", "valid", "val", "test"}),
    "Evaluation samples; what is not said is as in train, no path: no evaluation");
  v("validation_fraction", d.validation_fraction, at_least(0).below(1).also({"val_fraction", "test_size"}),
    "gpt: the last part of data.train that is kept for validation when data.validation has no path");
  v("tokenizer", d.tokenizer, anything(), "gpt: how text becomes tokens");
  v("features", d.features, anything().also({"columns"}),
    "recommender: what the columns of click records are");
  v("documents", d.documents, anything().also({"packing", "reset_attention_mask"}),
    "gpt: joined: a sequence reads on over the ends of documents; separate: attention and positions begin "
    "anew at each");
  v("windows", d.windows, anything().also({"sampling"}),
    "gpt: epoch: every part of the text once an epoch; random: sequences from random places, as nanoGPT");
  v("label_names", d.label_names, anything().also({"labels", "classes", "class_names"}),
    "Labels as the files write them, in the order of the model's outputs; empty: integers from 0 (numbers in "
    "regression)");
  v("max_length", d.max_length,
    at_least(1).at_most(kMillion).in("tokens").also(
        {"max_seq_length", "max_len", "block_size", "sequence_length", "seq_len", "context_length"}),
    "Longest sequence, special tokens included; longer ones are truncated; gpt: the length of a sequence");
  v("truncation", d.truncation, anything(), "Which text of a pair loses tokens when both are too long");
  v("shuffle", d.shuffle, anything(), "Whether training samples are in a new random order every epoch");
  v("num_workers", d.num_workers, at_least(1).at_most(256).in("threads").also({"dataloader_num_workers"}),
    "Threads per rank that prepare batches ahead of training");
  v("prefetch", d.prefetch, at_least(1).at_most(1024).in("batches").also({"prefetch_factor"}),
    "Batches per rank that are held ready");
  v("pin_memory", d.pin_memory, anything().also({"dataloader_pin_memory"}),
    "Whether batches lie in page-locked memory, for faster copies to a GPU");
}

template <class V>
void describe(V& v, LossScale& s) {
  v("initial", s.initial, above(0).also({"init_scale"}), "Loss scale of the first step");
  v("growth_factor", s.growth_factor, above(1), "Factor after growth_interval good steps in a row");
  v("backoff_factor", s.backoff_factor, above(0).below(1), "Factor after a step with inf or NaN gradients");
  v("growth_interval", s.growth_interval, at_least(1).in("steps"),
    "Good steps in a row before the scale grows");
}

template <class V>
void describe(V& v, Train& t) {
  v("epochs", t.epochs, at_least(1).at_most(kMillion).also({"num_epochs", "num_train_epochs", "max_epochs"}),
    "Passes over the training samples; give epochs or steps; neither: 3 epochs");
  v("steps", t.steps, at_least(1).at_most(kMostSteps).also({"max_steps", "num_steps", "total_steps"}),
    "Optimizer steps, instead of epochs");
  v("batch_size", t.batch_size,
    at_least(1).at_most(kMillion).in("samples").also(
        {"per_device_train_batch_size", "train_batch_size", "micro_batch_size"}),
    "Samples per rank and micro-batch; the sample limit when batch_tokens is set");
  v("batch_tokens", t.batch_tokens,
    at_least(0).at_most(kMillion).in("tokens").also({"max_tokens", "tokens_per_batch"}),
    "Token budget per rank and micro-batch; 0: batches by sample count");
  v("gradient_accumulation", t.gradient_accumulation,
    at_least(1)
        .at_most(kMostAccumulation)
        .in("micro-batches")
        .also({"gradient_accumulation_steps", "accumulation", "accumulate_grad_batches"}),
    "Micro-batches per rank and optimizer step");
  v("precision", t.precision, anything().also({"dtype", "amp", "mixed_precision", "bf16", "fp16"}),
    "Arithmetic of matrix products (autocast); weights and optimizer state are fp32 always");
  v("tf32", t.tf32, anything().also({"allow_tf32"}), "Whether fp32 matrix products on a GPU may use TF32");
  v("clip_grad_norm", t.clip_grad_norm, at_least(0).also({"max_grad_norm", "gradient_clipping", "grad_clip"}),
    "Largest global gradient norm; 0: no clipping");
  v("on_nonfinite", t.on_nonfinite, anything(),
    "What an inf or NaN gradient does: skip the step, or abort the job");
  v("max_skipped_steps", t.max_skipped_steps, at_least(1).in("steps"),
    "Skipped steps in a row after which the job fails");
  v("loss_scale", t.loss_scale, anything().also({"grad_scaler"}), "Dynamic loss scale of fp16");
  v("attention", t.attention, anything().also({"attn_implementation", "sdp_backend"}),
    "Attention's kernel on GPUs; auto: the fastest but for math, measured when the job starts");
  v("recompute", t.recompute, anything().also({"activation_checkpointing", "gradient_checkpointing"}),
    "gpt: what backward computes again rather than keeps: nothing, the inside of MLPs, or whole blocks; "
    "saves memory");
  v("ema_decay", t.ema_decay, at_least(0).below(1).also({"ema"}),
    "Decay of a running mean of the weights, which evaluation and saved models then use; 0: none");
  v("require_loss_decrease", t.require_loss_decrease, anything(),
    "Whether the job fails when the training loss did not fall; for smoke tests");
}

template <class V>
void describe(V& v, Optimizer& o) {
  v("type", o.type, anything().also({"name", "optim"}), "Update rule");
  v("lr", o.lr, above(0).also({"learning_rate"}), "Peak learning rate");
  v("weight_decay", o.weight_decay, at_least(0).also({"wd"}),
    "Weight decay: decoupled in adamw, added to the gradient in sgd and adagrad");
  v("decay_bias_and_norm", o.decay_bias_and_norm, anything(),
    "Whether biases and normalization weights decay too");
  v("beta1", o.beta1, at_least(0).below(1).also({"adam_beta1", "betas"}),
    "adamw: decay of the mean gradient");
  v("beta2", o.beta2, at_least(0).below(1).also({"adam_beta2"}), "adamw: decay of the mean squared gradient");
  v("eps", o.eps, at_least(1e-38).also({"adam_epsilon", "epsilon"}),
    "adamw, adagrad: added to the denominator against division by zero");
  v("momentum", o.momentum, at_least(0).below(1), "sgd: decay of the velocity");
  v("nesterov", o.nesterov, anything(), "sgd: whether momentum looks ahead");
}

template <class V>
void describe(V& v, Schedule& s) {
  v("type", s.type, anything().also({"name", "lr_scheduler_type", "scheduler"}),
    "Form of the learning rate after warm-up");
  v("warmup_steps", s.warmup_steps, at_least(0).in("steps").also({"num_warmup_steps", "warmup"}),
    "Steps of linear growth from 0 to the peak");
  v("warmup_ratio", s.warmup_ratio, at_least(0).at_most(1),
    "Warm-up as a fraction of all steps, instead of warmup_steps");
  v("min_lr_ratio", s.min_lr_ratio, at_least(0).at_most(1).also({"min_lr"}),
    "Lowest learning rate after warm-up, as a fraction of the peak");
  v("power", s.power, above(0), "polynomial: exponent of the decay");
}

template <class V>
void describe(V& v, Evaluation& e) {
  v("every", e.every,
    words_or_at_least({"epoch", "never"}, 1)
        .in("steps")
        .also({"eval_steps", "evaluation_strategy", "eval_strategy", "interval"}),
    "When to evaluate: at the end of every epoch, never, or every so many steps");
  v("batch_size", e.batch_size,
    at_least(0).at_most(kMillion).in("samples").also({"per_device_eval_batch_size", "eval_batch_size"}),
    "Samples per rank and evaluation batch; 0: as in training, by train.batch_tokens where that is set");
  v("samples", e.samples, at_least(0).in("samples").also({"eval_iters", "limit_val_batches", "max_samples"}),
    "Evaluation samples that are used, spread evenly over all; 0: all");
  v("metrics", e.metrics, anything().also({"metric"}), "What is computed over all evaluation samples");
  v("best", e.best, anything().also({"metric_for_best_model", "monitor"}),
    "Metric by which the best model is kept; unset: none, the last model is kept");
  v("early_stop_patience", e.early_stop_patience,
    at_least(0)
        .at_most(kMillion)
        .in("evaluations")
        .also({"early_stopping_patience", "patience", "early_stop"}),
    "Evaluations in a row without a better one that end training; 0: never");
}

template <class V>
void describe(V& v, Parallel& p) {
  v("strategy", p.strategy, anything(), "How ranks share the work: ddp: every rank holds the whole model");
  v("bucket_cap_mb", p.bucket_cap_mb, above(0).at_most(kMillion).in("MiB"),
    "Gradients that are reduced together, overlapped with backward");
  v("find_unused_parameters", p.find_unused_parameters, anything().also({"ddp_find_unused_parameters"}),
    "Whether parameters may get no gradient in a step");
  v("static_graph", p.static_graph, anything(),
    "Whether every step uses the same parameters in the same order");
  v("gradient_compression", p.gradient_compression, anything().also({"comm_hook"}),
    "Type in which gradients travel between ranks; none: fp32");
  v("embedding", p.embedding, anything().also({"embedding_sharding"}),
    "How ranks share embedding tables that do not say: whole tables, blocks of rows, ranges of columns, or a "
    "copy on "
    "every rank; auto: as is best for memory and traffic");
  v("embedding_compression", p.embedding_compression, anything(),
    "Type in which looked-up embeddings and their gradients travel between ranks; none: fp32");
  v("embedding_memory_gb", p.embedding_memory_gb, at_least(0).at_most(kMillion).in("GiB"),
    "Memory of a rank that tables may fill; 0: no limit");
  v("timeout_s", p.timeout_s, above(0).at_most(kMillion).in("s").also({"timeout", "ddp_timeout"}),
    "Longest wait of a collective or of joining before the job fails");
}

template <class V>
void describe(V& v, Launch& l) {
  v("nproc_per_node", l.nproc_per_node,
    words_or_at_least({"auto", "gpu", "cpu"}, 1)
        .at_most(kMostWorkersPerNode)
        .in("workers")
        .also({"num_processes", "num_gpus", "gpus", "nproc"}),
    "Workers on each node: a number, gpu: one per GPU, cpu: one per core, auto: gpu, or one without GPUs");
  v("nnodes", l.nnodes,
    at_least(1)
        .at_most(kMostNodes)
        .matching(kNodesPattern, "a number of nodes, e.g. 2, or a range MIN:MAX, e.g. 2:8")
        .also({"num_nodes", "num_machines", "nodes"}),
    "Nodes of the job; trainer is started once on each. MIN:MAX: the job runs with any number of nodes in "
    "the "
    "range, and forms anew when nodes come and go");
  v("node_rank", l.node_rank, at_least(0).at_most(kMillion).also({"machine_rank"}),
    "This node's number, from 0; unset: as the scheduler's variables say, or in the order of addresses when "
    "nodes meet at rdzv_endpoint");
  v("master_addr", l.master_addr, anything().also({"master_address", "main_process_ip"}),
    "Host name or address of node 0, where a fixed number of nodes meet");
  v("master_port", l.master_port, at_least(0).at_most(65535).also({"main_process_port"}),
    "Port of node 0 where a fixed number of nodes meet, not used on a single node; unset: MASTER_PORT, else "
    "29500");
  v("rdzv_endpoint", l.rdzv_endpoint, anything().also({"rdzv", "rendezvous_endpoint"}),
    "HOST[:PORT] where nodes meet and are numbered, run by the node that has this address; several, with "
    "commas "
    "between: the next one takes over when one is lost. Port when not said: 29400");
  v("run_id", l.run_id, anything().also({"rdzv_id", "job_id", "rdzv_run_id"}),
    "Name of this run, the same on all nodes; keeps apart jobs that share an endpoint, and names log "
    "directories");
  v("token", l.token, anything().also({"secret", "password"}),
    "Secret that nodes must share to join, better said by the variable TRAINER_TOKEN; empty: run_id alone is "
    "asked");
  v("local_addr", l.local_addr, anything(),
    "This node's address for its peers; empty: that of its route to the endpoint");
  v("interface", l.interface, anything().also({"ifname", "nic", "network_interface"}),
    "Network interface of the control connections, and of Gloo and NCCL where their variables do not say; "
    "empty: by the route");
  v("join_timeout_s", l.join_timeout_s,
    above(0).at_most(kMillion).in("s").also({"join_timeout", "rdzv_timeout"}),
    "Longest wait for enough nodes");
  v("last_call_s", l.last_call_s, at_least(0).at_most(kMillion).in("s").also({"last_call_timeout"}),
    "Wait for more nodes once the fewest are there");
  v("heartbeat_s", l.heartbeat_s, above(0).at_most(kMillion).in("s").also({"keep_alive_interval"}),
    "Time between signs of life of a node");
  v("heartbeat_timeout_s", l.heartbeat_timeout_s, above(0).at_most(kMillion).in("s"),
    "Silence after which a node is lost");
  v("network", l.network, anything(),
    "Which network NCCL, UCX and Gloo are set up for by variables that are not set yet; auto: InfiniBand "
    "where "
    "there is one; none: nothing is set");
  v("preflight", l.preflight, anything(),
    "Whether ports, network, versions, memory and directories are checked before workers start "
    "(--no-preflight: not)");
  v("max_restarts", l.max_restarts,
    at_least(0).at_most(kMillion).in("restarts").also({"restarts", "max_retries"}),
    "Restarts of the job after failed workers, whichever node's");
  v("max_restarts_without_progress", l.max_restarts_without_progress,
    at_least(1).at_most(kMillion).in("restarts"),
    "Restarts in a row without a new training step, after which the job fails; programs other than trainer "
    "run's "
    "workers tell no steps");
  v("hang_timeout_s", l.hang_timeout_s,
    at_least(-1).at_most(kMillion).in("s").also({"hang_timeout", "watchdog_timeout_s"}),
    "Time without a sign of progress after which a worker of trainer run hangs, and the attempt ends; 0: "
    "learned, 5 times "
    "the slowest step seen but at least 60 s; -1: not watched");
  v("straggler_factor", l.straggler_factor, at_least(0).at_most(kMillion),
    "Ranks slower than the median by this factor are named in the log; 0: none");
  v("straggler_interval_s", l.straggler_interval_s, above(0).at_most(kMillion).in("s"),
    "Time over which ranks are compared, and between two such lines");
  v("signals_to_handle", l.signals_to_handle,
    anything().matching("[A-Z0-9]+(,[A-Z0-9]+)*",
                        "names of signals with commas between, e.g. SIGTERM,SIGINT"),
    "Signals that stop the job, saving first where workers can; SIGUSR1, when not among them, saves and goes "
    "on");
  v("grace_s", l.grace_s, at_least(0).at_most(kMillion).in("s"),
    "Time from SIGTERM to SIGKILL when workers are stopped");
  v("preempt_grace_s", l.preempt_grace_s, at_least(0).at_most(kMillion).in("s"),
    "Time for workers to save and stop by themselves before SIGTERM");
  v("preempt_file", l.preempt_file, anything(),
    "File whose appearance, e.g. a spot instance's notice, saves and stops the job");
  v("stop_before_end_s", l.stop_before_end_s, at_least(0).at_most(kMillion).in("s"),
    "How long before the end of its Slurm allocation (SLURM_JOB_END_TIME) the job saves and stops; 0: it "
    "does not");
  v("log_dir", l.log_dir, anything().also({"logdir"}),
    "Directory of workers' logs: <log_dir>/<run_id>_<random>/attempt_<n>/<local rank>/stdout.log, stderr.log "
    "and "
    "error.json; empty: <output_dir>/logs/attempt_<n>/... of trainer run, a temporary one of trainer launch");
  v("redirects", l.redirects, at_least(0).at_most(3).matching(kStreamsPattern, kStreamsForm),
    "Streams that go to the logs alone, not to the console: 0 none, 1 standard output, 2 standard error, 3 "
    "both, or "
    "local ranks' own, e.g. 0:1,1:3");
  v("tee", l.tee, at_least(0).at_most(3).matching(kStreamsPattern, kStreamsForm),
    "Streams that go to both the logs and the console, even when redirected");
  v("local_ranks_filter", l.local_ranks_filter, at_least(0).at_most(kMillion),
    "Local ranks whose lines the console shows; empty: all");
  v("duplicate_stdout_filters", l.duplicate_stdout_filters, anything(),
    "Texts; standard output's lines with one of them also go to filtered_stdout.log of the attempt");
  v("duplicate_stderr_filters", l.duplicate_stderr_filters, anything(),
    "Texts; standard error's lines with one of them also go to filtered_stderr.log of the attempt");
  v("log_max_mb", l.log_max_mb, at_least(0).at_most(kMillion).in("MiB"),
    "Size at which a log is renamed to stdout.log.1 (in place of an older one) and begun anew; 0: no bound");
  v("role", l.role, anything(), "ROLE_NAME of workers");
  v("numa_binding", l.numa_binding, anything().also({"numa", "cpu_binding"}),
    "CPUs and memory that a worker is bound to, by its GPU's place; auto: node where the machine has "
    "several; none: "
    "all");
  v("virtual_local_rank", l.virtual_local_rank, anything(),
    "Whether every worker has LOCAL_RANK 0 and sees its own GPU alone");
  v("env", l.env, anything().also({"environment"}), "Environment variables of workers, e.g. NCCL_DEBUG");
}

template <class V>
void describe(V& v, Checkpoint& c) {
  v("every_steps", c.every_steps,
    at_least(0).in("steps").also({"save_steps", "every", "interval", "save_interval"}),
    "Steps between checkpoints in <output_dir>/checkpoints, from which training goes on as if it had never "
    "stopped; 0: one when the job is asked to save or to stop");
  v("keep_last", c.keep_last,
    at_least(0).at_most(kMillion).in("checkpoints").also({"save_total_limit", "keep", "max_to_keep"}),
    "Checkpoints that are kept, the newest; 0: all");
  v("resume", c.resume, anything().also({"resume_from_checkpoint", "resume_from"}),
    "Where training begins. restarts: a job that its launcher restarts goes on from its newest whole "
    "checkpoint, "
    "a new run begins at the first step; auto: a new run goes on too; never: always at the first step; or "
    "the "
    "directory of a checkpoint or of a run");
  v("save_final", c.save_final, anything().also({"save_last"}),
    "Whether the model is written to <output_dir>/final at the end");
  v("save_best", c.save_best, anything().also({"load_best_model_at_end", "save_top_k"}),
    "Whether the best model by evaluation.best is written to <output_dir>/best");
}

template <class V>
void describe(V& v, Logging& l) {
  v("every_steps", l.every_steps, at_least(1).in("steps").also({"logging_steps", "log_every", "every"}),
    "Steps between lines of metrics");
  v("progress", l.progress, anything(),
    "bar: one live line; lines: plain lines; none: neither; auto: bar on a terminal, else lines");
}

template <class V>
void describe(V& v, Hardware& h) {
  v("device", h.device, anything().also({"accelerator", "use_cpu"}),
    "Where to train; auto: GPUs when there are any");
  v("backend", h.backend, anything().also({"ddp_backend"}),
    "Library of collectives; auto: nccl on GPUs, gloo on CPUs");
  v("threads_per_worker", h.threads_per_worker,
    at_least(0).at_most(65536).in("threads").also({"omp_num_threads"}),
    "CPU threads of each worker's operators; 0: usable cores / workers on the node");
}

template <class V>
void describe(V& v, JobSpec& s) {
  v("job", s.job, anything().also({"run"}), "The job's name, seed and directory");
  v("model", s.model, anything(), "What is trained");
  v("data", s.data, anything().also({"dataset"}), "What it is trained on");
  v("train", s.train, anything().also({"training", "trainer"}), "How long, and in what portions");
  v("optimizer", s.optimizer, anything().also({"optim"}), "How gradients become updates");
  v("schedule", s.schedule, anything().also({"scheduler", "lr_scheduler"}), "How the learning rate changes");
  v("evaluation", s.evaluation, anything().also({"validation", "eval"}), "When and how the model is judged");
  v("parallel", s.parallel, anything().also({"distributed", "ddp"}), "How ranks work together");
  v("launch", s.launch, anything().also({"launcher"}), "Which workers are started");
  v("checkpoint", s.checkpoint, anything().also({"checkpoints", "save"}), "What is kept");
  v("logging", s.logging, anything().also({"log"}), "What is shown");
  v("hardware", s.hardware, anything().also({"device"}), "Where it runs");
}

}  // namespace trainer::spec
