"""The schema of the configuration: the name, type, default and meaning of every key.

The models are frozen and pure: they open no file and query no device. `load.py` fills them from YAML and turns their
errors into messages with line numbers. Defaults are defined only here. The architecture, dropout, Adam, the learning
rate, label smoothing, beam size and length penalty default to the base model of "Attention Is All You Need".
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from transformer_cli.config.corpora import AnyCorpus as AnyCorpus
from transformer_cli.config.corpora import Corpora, CorporaOrHoldOut, FilePath, Positive, as_tuple, conflict
from transformer_cli.config.corpora import Corpus as Corpus
from transformer_cli.config.corpora import HoldOut as HoldOut
from transformer_cli.config.corpora import HubSet as HubSet
from transformer_cli.config.corpora import Section as Section
from transformer_cli.config.corpora import Table as Table
from transformer_cli.config.names import FileName, Language, Symbol, TestName

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class FilterConfig(Section):
    """Optional filters, besides those for empty sides and `max_length`. Pairs left out are counted by reason."""

    length_ratio: Annotated[float, Field(gt=1.0)] | None = None
    """Leave out pairs where one side has more than this many times the letters of the other, after adding 10 to both. A
    Chinese character counts as three letters, a Japanese or Korean one as two. 3.0 is usual."""
    identical: bool = False
    """Leave out pairs whose two sides are equal."""
    duplicates: bool = False
    """Leave out repetitions of a pair, with both sides equal. Takes 8 to 16 bytes of memory per distinct pair."""
    overlap: bool = False
    """Leave out pairs whose source also occurs in the validation set or a test set."""
    script: bool = False
    """Leave out pairs with a side whose letters are mostly in a script that its language is not written in. Unknown
    languages pass; a script subtag such as in `sr-Latn` restricts the language to that script."""


class DataConfig(Section):
    """The training, validation and test text."""

    source_lang: Language = "und"
    """Language of the source, a BCP-47 tag such as `en` or `pt-BR`; `und` if undetermined."""
    target_lang: Language = "und"
    """Language of the target; it selects the tokenizer of BLEU (`zh` for Chinese)."""
    train: Corpora = ()
    """Corpora to train on: a list of `{source: FILE, target: FILE}` (text, one sentence per line), `{path: FILE,
    source_field: NAME, target_field: NAME}` (TSV, CSV, JSON, Parquet) and `{hub: NAME, split: NAME, source_field: NAME,
    target_field: NAME}` (Hugging Face), in any mixture; see below."""
    valid: CorporaOrHoldOut = ()
    """Validation set, which measures progress and selects the best checkpoint: corpora like those of `train`, or
    `{hold_out: N}` for N pairs held out of `train`."""
    test: dict[TestName, CorporaOrHoldOut] = {}  # noqa: RUF012, pydantic gives each model its own
    """Test sets by name, each a list of corpora or `{hold_out: N}`. They are translated and scored once, after
    training. The last line printed is the score of the first one."""
    max_length: Positive = 256
    """Maximum number of pieces on each side of a training pair; longer pairs are left out and counted."""
    filters: FilterConfig = FilterConfig()
    errors: Literal["strict", "replace"] = "strict"
    """How to treat bytes that are not UTF-8: `strict` stops with their position; `replace` puts U+FFFD in their place
    and logs the number of lines."""
    cache_dir: FilePath | None = None
    """Folder that caches the trained tokenizer and the token ids for the next start. Left out: `transformer_cli` in the
    user's cache folder."""

    @property
    def stream(self) -> HubSet | None:
        """The set that is streamed in training, if there is one."""
        return next((corpus for corpus in self.train if isinstance(corpus, HubSet) and corpus.streaming), None)

    @model_validator(mode="after")
    def _can_be_streamed(self) -> Self:
        if self.stream is None:
            return self
        place = self.train.index(self.stream)
        if len(self.train) > 1:
            raise conflict(
                "train",
                f"train[{place}] has streaming: true, and such a set is the only one to train on: leave streaming out, "
                "or the other corpora",
            )
        if self.stream.weight != 1.0:
            raise conflict(
                "train",
                f"train[{place}].weight has no part with streaming: true, where each record stands once in an epoch: "
                "leave it out",
            )
        for key, part in {"valid": self.valid, **{f"test.{name}": part for name, part in self.test.items()}}.items():
            if isinstance(part, HoldOut):
                raise conflict(
                    key,
                    f"{key}.hold_out needs the whole of train to choose from, and train[{place}] has streaming: true: "
                    "name a set of its own, such as another split",
                )
        if self.filters.duplicates:
            raise conflict(
                "filters.duplicates",
                f"filters.duplicates remembers every pair, and train[{place}] with streaming: true is never held: "
                "leave one of them out",
            )
        return self


class TokenizerConfig(Section):
    """The SentencePiece tokenizer. It is trained on the training text unless `model` names an existing one."""

    vocab_size: Annotated[int, Field(ge=5, le=1_000_000)] = 8000
    """Number of pieces, including the four special ones; with `shared: false`, of each side. If the corpus is too small
    for it, there are fewer pieces, and a warning is logged."""
    model_type: Literal["unigram", "bpe", "char", "word"] = "unigram"
    """Segmentation algorithm: unigram language model, byte-pair encoding, characters, or whole words."""
    shared: bool = True
    """Use one vocabulary for both languages, or one for each."""
    byte_fallback: bool = False
    """Encode unknown characters as bytes (256 more pieces) instead of as the unknown piece."""
    normalization: Literal["clean", "identity", "nfkc", "nmt_nfkc"] = "clean"
    """Normalisation of text before it is tokenised. `clean` composes characters (NFC), replaces every kind of space by
    a plain one, merges spaces, removes control and zero-width characters, and keeps full-width punctuation. The others
    are SentencePiece's own rules."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = 1.0
    """Share of the characters of the training text that get a piece of their own. Below 1, the rarest characters are
    unknown (or bytes): 0.9995 suits Chinese and Japanese, and large corpora with stray characters of other scripts."""
    user_defined_symbols: Annotated[tuple[Symbol, ...], BeforeValidator(as_tuple)] = ()
    """Strings without spaces, such as `<2de>`, that are always one piece."""
    sample_lines: Positive = 400_000
    """Maximum number of lines to train the tokenizer on, in both languages together, or in each with `shared: false`. A
    larger text is sampled at random. SentencePiece needs about 25 times the size of these lines in memory: 1.2 GB for
    the default with 25 pieces per line."""
    model: FilePath | None = None
    """Existing SentencePiece model to use instead of training one. It must have the ids 0 to 3 for padding, unknown,
    start and end. The keys above, except `shared`, then have no effect. With `shared: false`, the model of the
    source."""
    target_model: FilePath | None = None
    """Existing SentencePiece model of the target, with `shared: false`."""
    sampling_alpha: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Segment the training text differently each epoch, on both sides (subword regularisation). `unigram`: power of the
    probabilities to draw segmentations with; lower values give more and shorter pieces: about 8 % more at 0.5, 25 % at
    0.3, twice as many at 0.1. `bpe`: the share of merges left out (BPE dropout), often 0.1. Left out: always the best
    segmentation."""

    @model_validator(mode="after")
    def _symbols_are_new(self) -> Self:
        taken = {"<pad>", "<unk>", "<s>", "</s>"} & set(self.user_defined_symbols)
        if taken or len(set(self.user_defined_symbols)) < len(self.user_defined_symbols):
            raise conflict(
                "user_defined_symbols",
                "user_defined_symbols must differ from each other and from <pad>, <unk>, <s> and </s>",
            )
        return self

    @model_validator(mode="after")
    def _models_fit(self) -> Self:
        if self.shared and self.target_model is not None:
            raise conflict("target_model", "target_model needs shared: false; a shared vocabulary has one model")
        if not self.shared and (self.model is None) != (self.target_model is None):
            raise conflict(
                "model" if self.target_model is None else "target_model",
                "with shared: false, model and target_model go together: one for each side",
            )
        if self.sampling_alpha is not None and self.model is None and self.model_type in ("char", "word"):
            raise conflict(
                "sampling_alpha",
                f"sampling_alpha needs model_type unigram or bpe: {self.model_type} has one way to cut a text",
            )
        return self


class ModelConfig(Section):
    """The architecture of the Transformer."""

    d_model: Size = 512
    """Width of the embeddings and of every layer."""
    ffn_dim: Size = 2048
    """Inner width of the feed-forward blocks."""
    num_heads: Size = 8
    """Number of attention heads; each has the width `d_model` / `num_heads`."""
    encoder_layers: Size = 6
    """Number of encoder layers."""
    decoder_layers: Size = 6
    """Number of decoder layers. Fewer of them than encoder layers make translation faster."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum (the paper) or before each block (easier to train deep)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position encoding: sinusoidal, for any length, or learned, up to `max_positions`."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    """Activation function of the feed-forward blocks."""
    dropout: Share = 0.1
    """Dropout on the output of every block, before the residual sum."""
    attention_dropout: Share = 0.0
    """Dropout on the attention weights."""
    activation_dropout: Share = 0.0
    """Dropout after the activation function of the feed-forward blocks."""
    embedding_dropout: Share | None = None
    """Dropout on the sum of embedding and position. Left out: the same as `dropout`."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Share one matrix between source embedding, target embedding and output projection (`all`, which needs a shared
    vocabulary), between the last two (`target`), or not at all (`none`)."""
    max_positions: Size = 1024
    """Maximum sequence length with learned positions."""

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        if self.d_model % self.num_heads:
            raise conflict(
                "num_heads",
                f"d_model {self.d_model} cannot be shared equally by num_heads {self.num_heads}: make "
                "d_model a multiple of num_heads",
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise conflict("d_model", f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self


class TrainingConfig(Section):
    """The optimisation, and when to log, validate, save and stop. A step is one optimizer update."""

    batch_type: Literal["tokens", "sentences"] = "tokens"
    """Unit of `batch_size`."""
    batch_size: Positive = 4096
    """Maximum size of a batch: in `tokens`, sentences x longest side, padding included; in `sentences`, pairs."""
    gradient_accumulation_steps: Positive = 1
    """Number of batches of `batch_size` whose gradients are accumulated for one step."""
    activation_checkpointing: bool = False
    """Recompute the activations of each layer in the backward pass instead of storing them: less memory, more time."""
    compile: bool = False
    """Compile the model with torch.compile. The start is slow, so this is meant for long runs on a GPU. Needs a C++
    compiler."""
    init_from: FilePath | None = None
    """Run, model file or checkpoint whose weights and tokenizer to start from (fine-tuning). The sections `tokenizer`
    and `model` may be left out; keys given there must match."""
    max_steps: Positive = 20000
    """Number of steps after which training ends."""
    max_epochs: Positive | None = None
    """Number of epochs (passes over the training pairs) after which training ends."""
    max_hours: Annotated[float, Field(gt=0.0)] | None = None
    """Hours of training after which it ends, including the hours before a resume."""
    lr_schedule: Literal["noam", "inverse_sqrt", "cosine", "constant"] = "noam"
    """Learning rate schedule after the linear warm-up."""
    noam_factor: Annotated[float, Field(gt=0.0)] | None = None
    """Factor on the paper's learning rate, `d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`; 1 if left out.
    Only for `noam`."""
    learning_rate: Annotated[float, Field(gt=0.0)] | None = None
    """Maximum learning rate, reached at the end of the warm-up. Required by every schedule but `noam`."""
    warmup_steps: Count = 4000
    """Number of steps of linear learning-rate warm-up; 0 means none, which `noam` does not support."""
    label_smoothing: Share = 0.1
    """Probability taken from the correct piece and spread evenly over all others except padding."""
    adam_betas: Annotated[tuple[Share, Share], BeforeValidator(as_tuple)] = (0.9, 0.98)
    """Adam's decay rates."""
    adam_eps: Annotated[float, Field(gt=0.0)] = 1e-9
    """Adam's epsilon."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_grad_norm: Annotated[float, Field(gt=0.0)] | None = 1.0
    """Maximum gradient norm; a larger gradient is scaled down to it. `null`: no clipping."""
    valid_steps: Positive = 500
    """Steps between validations."""
    save_steps: Positive | None = None
    """Steps between checkpoints. Left out: the same as `valid_steps`. A checkpoint is also saved at a new best and at
    the end."""
    log_steps: Positive = 50
    """Steps between log lines."""
    tensorboard: bool = False
    """Write the content of metrics.jsonl to the run's folder `tensorboard` too. Needs `pip install
    tensorboard`."""
    keep_last: Positive = 5
    """Number of latest checkpoints to keep."""
    keep_best: Count = 1
    """Number of best checkpoints to keep in addition; `--resume` can restore a lost model file from them."""
    average_last: Positive = 5
    """Number of latest checkpoints to average at the end. The average is used if its validation is better than the
    best. 1: no averaging."""
    best_metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """Metric that selects the best checkpoint. A score below 1 is noise: the validation loss decides until then."""
    patience: Positive | None = 10
    """Number of validations without a new best after which training ends. `null`: unlimited."""

    @model_validator(mode="after")
    def _rate_has_one_source(self) -> Self:
        if self.lr_schedule == "noam":
            if self.learning_rate is not None:
                raise conflict(
                    "learning_rate",
                    "lr_schedule noam computes its rate from d_model and warmup_steps: scale it with "
                    "noam_factor instead of learning_rate, or choose inverse_sqrt, cosine or constant",
                )
            if self.warmup_steps == 0:
                raise conflict("warmup_steps", "lr_schedule noam divides by warmup_steps: it must be at least 1")
        else:
            if self.noam_factor is not None:
                raise conflict(
                    "noam_factor",
                    f"noam_factor belongs to lr_schedule noam: give {self.lr_schedule} its peak as learning_rate",
                )
            if self.learning_rate is None:
                raise conflict(
                    "lr_schedule",
                    f"lr_schedule {self.lr_schedule} needs learning_rate, its highest rate (such as 5e-4)",
                )
        return self

    @model_validator(mode="after")
    def _average_is_kept(self) -> Self:
        if self.average_last > self.keep_last:
            raise conflict(
                "average_last",
                f"average_last {self.average_last} needs as many checkpoints, and keep_last keeps only "
                f"{self.keep_last}",
            )
        return self


class DecodingConfig(Section):
    """Beam search and its constraints."""

    beam_size: Positive = 4
    """Number of hypotheses in the beam; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """Alpha in score = log-probability / lp(n), where n is the number of pieces of the translation including its end
    symbol, without the start symbol and padding. 0 means no penalty; larger values favour longer translations."""
    length_penalty_type: Literal["wu", "avg", "none"] = "wu"
    """Formula of lp(n): `wu` ((5 + n) / 6)^alpha, `avg` n^alpha, `none` 1."""
    max_length_a: Annotated[float, Field(ge=0.0, le=1000.0)] = 2.0
    """A translation has at most max_length_a x source pieces + max_length_b pieces, including its end symbol."""
    max_length_b: Size = 10
    """See `max_length_a`."""
    n_best: Positive = 1
    """Number of translations to output for each line."""
    min_length: Count = 0
    """Minimum number of pieces of a translation, without its end symbol."""
    no_repeat_ngram_size: Count = 0
    """Length of the n-grams of pieces that may occur only once in a translation; 0: no restriction."""
    repetition_penalty: Annotated[float, Field(ge=1.0)] = 1.0
    """Above 1, pieces that are already in a translation become less likely: a positive logit is divided by this number,
    a negative one multiplied by it. Scores then include the penalty."""

    @model_validator(mode="after")
    def _enough_hypotheses(self) -> Self:
        if self.n_best > self.beam_size:
            raise conflict(
                "n_best", f"n_best {self.n_best} needs a beam_size of at least as many, not {self.beam_size}"
            )
        return self


Metric = Literal["bleu", "chrf", "chrf++", "ter"]
MetricTokenizer = Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200", "spm"]


class EvaluationConfig(Section):
    """The metrics that score translations."""

    metrics: Annotated[tuple[Metric, ...], BeforeValidator(as_tuple), Field(min_length=1)] = ("bleu", "chrf")
    """Metrics to compute."""
    valid_beam_size: Positive = 1
    """Beam size of the translations at each validation."""
    tokenize: MetricTokenizer | None = None
    """BLEU's tokenizer. Left out: by target language (zh: `zh`, ja: `ja-mecab`, ko: `ko-mecab`, others: `13a`)."""
    lowercase: bool = False
    """Ignore case in BLEU."""


class Config(Section):
    """One experiment."""

    name: FileName
    """Name of the run, which is saved in `runs/NAME`. Left out: the name of the YAML file."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Random seed for everything."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to compute on; `auto` takes the first available one of cuda, mps and cpu."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of training; `auto` is bf16 where the device supports it natively and gains from it, else fp32."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        longest = self.data.max_length + 1  # the end symbol
        if self.training.batch_type == "tokens" and longest > self.training.batch_size:
            raise conflict(
                "training.batch_size",
                f"a pair of data.max_length {self.data.max_length} pieces and its end symbol does "
                f"not fit into training.batch_size {self.training.batch_size}: lower the one or raise the other",
            )
        if self.model.positions == "learned" and longest > self.model.max_positions:
            raise conflict(
                "model.max_positions",
                f"learned positions end at model.max_positions {self.model.max_positions}, and "
                f"data.max_length {self.data.max_length} with its end symbol needs {longest}",
            )
        if self.model.tie_embeddings == "all" and not self.tokenizer.shared:
            raise conflict(
                "model.tie_embeddings",
                "model.tie_embeddings all needs one vocabulary: set tokenizer.shared to true, or "
                "tie_embeddings to target or none",
            )
        if self.training.best_metric not in ("loss", *self.evaluation.metrics):
            raise conflict(
                "training.best_metric",
                f"training.best_metric {self.training.best_metric} is not among "
                f"evaluation.metrics ({', '.join(self.evaluation.metrics)})",
            )
        return self
