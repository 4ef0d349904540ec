"""Every key of the configuration: its name, type, default and meaning, and nothing else.

The models are frozen and pure: no file is opened and no device asked here. `load.py` reads a YAML into them and turns
what they refuse into messages with line numbers. A default stands here once and nowhere else; a key left out has the
value of the base model of "Attention Is All You Need" unless the text beside it says otherwise.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from transformer_cli.config.corpora import AnyCorpus as AnyCorpus
from transformer_cli.config.corpora import Corpora, FilePath, Part, Positive, as_tuple, conflict
from transformer_cli.config.corpora import Corpus as Corpus
from transformer_cli.config.corpora import HoldOut as HoldOut
from transformer_cli.config.corpora import HubSet as HubSet
from transformer_cli.config.corpora import Section as Section
from transformer_cli.config.corpora import Table as Table

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=100)]
Symbol = Annotated[str, Field(pattern=r"^\S+$")]
LANGUAGE_TAG = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$"
Language = Annotated[str, Field(pattern=LANGUAGE_TAG)]


class FilterConfig(Section):
    """What else to leave out of training, beside pairs with an empty side and those over `max_length`; all counted."""

    length_ratio: Annotated[float, Field(gt=1.0)] | None = None
    """Pairs of which one side has more than this many times the letters of the other, 10 being added to both. A Chinese
    character counts as three letters, a Japanese or Korean one as two. 3.0 is usual."""
    identical: bool = False
    """Pairs whose sides are equal."""
    duplicates: bool = False
    """Pairs that were there before, both sides equal. Takes 8 to 16 bytes of memory for each different pair."""
    overlap: bool = False
    """Pairs whose source stands in the validation or a test set."""
    script: bool = False
    """Pairs of which one side is mostly in a script that its language is not written in, as far as the language is
    known here; `sr-Latn` expects one script."""


class DataConfig(Section):
    """Where the text lies."""

    source_lang: Language = "und"
    """Language of the source, a BCP-47 tag such as `en` or `pt-BR`; `und` when it has none."""
    target_lang: Language = "und"
    """Language of the target; it chooses the tokenizer of the metrics (`zh` for Chinese)."""
    train: Corpora = ()
    """Corpora to train on: a list of `{source: FILE, target: FILE}` (text, one sentence a line), `{path: FILE,
    source_field: NAME, target_field: NAME}` (TSV, CSV, JSON, Parquet) and `{hub: NAME, split: NAME, source_field: NAME,
    target_field: NAME}` (Hugging Face), mixed as you like; see below."""
    valid: Part = ()
    """What measures progress and chooses the best checkpoint: corpora like those of `train`, or `{hold_out: N}` for N
    lines kept out of `train`. Never trained on."""
    test: dict[FileName, Part] = {}  # noqa: RUF012, pydantic gives each model its own
    """Named test sets, each corpora or `{hold_out: N}`, translated and scored once, after training. The first one's
    score is the last line printed."""
    max_length: Positive = 256
    """Training pairs with more pieces than this on either side are left out, and counted."""
    filters: FilterConfig = FilterConfig()
    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8: stop and name them, or put U+FFFD in their place and count the
    lines."""
    cache_dir: FilePath | None = None
    """Folder where the trained tokenizer and the token ids are kept for the next start. Left out: `transformer_cli` in
    the user's cache folder."""

    @property
    def stream(self) -> HubSet | None:
        """The set that is streamed in training, if one is."""
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
    """The SentencePiece model, trained on the training text unless `model` names one that is there."""

    vocab_size: Annotated[int, Field(ge=5, le=1_000_000)] = 8000
    """Pieces, the four special ones included; with `shared: false`, of each side. A corpus too small for it gets as
    many as it allows, with a notice."""
    model_type: Literal["unigram", "bpe", "char", "word"] = "unigram"
    """How pieces are found; or every character is one, or every word."""
    shared: bool = True
    """One vocabulary for both languages, or one for each."""
    byte_fallback: bool = False
    """Spell unknown characters as bytes (256 more pieces) instead of giving up on them."""
    normalization: Literal["clean", "identity", "nfkc", "nmt_nfkc"] = "clean"
    """What happens to text before it is cut. `clean`: canonical composition, every kind of space becomes one space,
    control and zero-width characters vanish, full-width punctuation stays. The others are SentencePiece's own rules."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = 1.0
    """Share of the training text's characters that get a piece of their own. Below 1 the rarest are unknown (or bytes):
    0.9995 suits Chinese and Japanese, and large corpora with stray characters of other scripts."""
    user_defined_symbols: Annotated[tuple[Symbol, ...], BeforeValidator(as_tuple)] = ()
    """Texts without spaces, such as `<2de>`, that are one piece wherever they stand."""
    sample_lines: Positive = 400_000
    """Most lines of the training text that the pieces are found in, both languages together: a random sample of a
    larger text. SentencePiece needs some 25 times their size in memory, about 1.2 GB for as many lines of 25 pieces."""
    model: FilePath | None = None
    """SentencePiece model to use instead of training one, with the ids 0 to 3 for padding, unknown, start and end; then
    the keys above, but for `shared`, have no part. With `shared: false`, the source's."""
    target_model: FilePath | None = None
    """With `shared: false`, the target's."""
    sampling_alpha: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Cut training text into other pieces each epoch, both sides (subword regularisation). `unigram`: drawn with
    probabilities to this power, so that less than 1 makes them shorter and more: some 8 % at 0.5, 25 % at 0.3, twice as
    many at 0.1. `bpe`: the share of merges left out, often 0.1. Left out: always the best pieces."""

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
    """The Transformer."""

    d_model: Size = 512
    """Width of the embeddings and of every layer."""
    ffn_dim: Size = 2048
    """Inner width of the feed-forward blocks."""
    num_heads: Size = 8
    """Attention heads; they share `d_model` between them."""
    encoder_layers: Size = 6
    """Layers of the encoder."""
    decoder_layers: Size = 6
    """Layers of the decoder. Fewer than the encoder's translate faster."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum (the paper) or before each block (easier to train deep)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Sinusoidal positions work at any length; learned ones end at `max_positions`."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    """Non-linearity of the feed-forward blocks."""
    dropout: Share = 0.1
    """On the output of every block, before it is added to its input."""
    attention_dropout: Share = 0.0
    """On the attention weights."""
    activation_dropout: Share = 0.0
    """Inside the feed-forward blocks."""
    embedding_dropout: Share | None = None
    """On the sum of embedding and position. Left out: the same as `dropout`."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Source, target and output share one matrix; only target and output; or none. `all` needs a shared vocabulary."""
    max_positions: Size = 1024
    """Longest sequence that learned positions can take."""

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
    """What `batch_size` counts."""
    batch_size: Positive = 4096
    """With `tokens`: the most cells of a batch, padding included: sentences x longest side. With `sentences`: pairs."""
    gradient_accumulation_steps: Positive = 1
    """Batches of `batch_size` whose gradients make one step."""
    activation_checkpointing: bool = False
    """Compute the inside of each layer again in the backward pass instead of keeping it: less memory, more time."""
    compile: bool = False
    """Let torch.compile translate the model for the device: a slow start, meant for long runs on a GPU. Needs a C++
    compiler."""
    init_from: FilePath | None = None
    """Run, model file or checkpoint whose weights and tokenizer to start from (fine-tuning). The `tokenizer` and
    `model` sections may be left out; what they say must fit."""
    max_steps: Positive = 20000
    """Steps at which training ends."""
    max_epochs: Positive | None = None
    """Passes over the training pairs at which training ends."""
    max_hours: Annotated[float, Field(gt=0.0)] | None = None
    """Hours of training, resumed ones counted in, at which it ends."""
    lr_schedule: Literal["noam", "inverse_sqrt", "cosine", "constant"] = "noam"
    """Learning rate over the steps, after a linear warm-up."""
    noam_factor: Annotated[float, Field(gt=0.0)] | None = None
    """Multiplies the paper's rate, `d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`; 1 when left out. Only
    for `noam`."""
    learning_rate: Annotated[float, Field(gt=0.0)] | None = None
    """Highest learning rate, reached at the end of the warm-up. Needed by every schedule but `noam`."""
    warmup_steps: Count = 4000
    """Steps of linear warm-up; 0 means none, which `noam` cannot do."""
    label_smoothing: Share = 0.1
    """Probability taken from the right piece and spread evenly over the others, padding excepted."""
    adam_betas: Annotated[tuple[Share, Share], BeforeValidator(as_tuple)] = (0.9, 0.98)
    """Adam's decay rates."""
    adam_eps: Annotated[float, Field(gt=0.0)] = 1e-9
    """Adam's epsilon."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_grad_norm: Annotated[float, Field(gt=0.0)] | None = 1.0
    """Longest gradient; a longer one is scaled down to it. `null`: never."""
    valid_steps: Positive = 500
    """Steps between validations."""
    save_steps: Positive | None = None
    """Steps between checkpoints. Left out: the same as `valid_steps`. A new best and the end are saved besides."""
    log_steps: Positive = 50
    """Steps between log lines."""
    tensorboard: bool = False
    """Also write what metrics.jsonl has into the run's folder `tensorboard`. Needs `pip install
    "transformer-cli[tensorboard]"`."""
    keep_last: Positive = 5
    """Latest checkpoints that are kept."""
    keep_best: Count = 1
    """Best checkpoints that are kept besides: with them a model file that is lost comes back on `--resume`."""
    average_last: Positive = 5
    """Latest checkpoints averaged at the end; the average is used if it validates better than the best. 1: never."""
    best_metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """What makes a checkpoint the best. A score below 1 is noise: until it is there, the validation loss decides."""
    patience: Positive | None = 10
    """Validations without a new best after which training ends. `null`: never."""

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
    """How translations are searched for."""

    beam_size: Positive = 4
    """Hypotheses kept alive; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0.0)] = 0.6
    """Alpha in score = log-probability / lp(n), where n counts the pieces of the translation and its end symbol, never
    the start symbol or padding. 0 leaves the log-probability; larger values favour longer translations."""
    length_penalty_type: Literal["wu", "avg", "none"] = "wu"
    """lp(n): `wu` ((5 + n) / 6)^alpha, `avg` n^alpha, `none` 1."""
    max_length_a: Annotated[float, Field(ge=0.0, le=1000.0)] = 2.0
    """A translation has at most max_length_a x source pieces + max_length_b steps, its end symbol being one."""
    max_length_b: Size = 10
    """See `max_length_a`."""
    n_best: Positive = 1
    """Translations given for each line."""
    min_length: Count = 0
    """Pieces before which a translation does not end."""
    no_repeat_ngram_size: Count = 0
    """No sequence of so many pieces comes twice in a translation; 0: any may."""
    repetition_penalty: Annotated[float, Field(ge=1.0)] = 1.0
    """Above 1, pieces that a translation already has become less likely: a logit is divided by this number if it is
    positive and multiplied if not. Scores then contain the penalty."""

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
    """How translations are scored."""

    metrics: Annotated[tuple[Metric, ...], BeforeValidator(as_tuple), Field(min_length=1)] = ("bleu", "chrf")
    """Scores to compute."""
    valid_beam_size: Positive = 1
    """Beam of the translations made at a validation."""
    tokenize: MetricTokenizer | None = None
    """BLEU's tokenizer. Left out: by target language (zh: `zh`, ja: `ja-mecab`, ko: `ko-mecab`, others `13a`)."""
    lowercase: bool = False
    """Compare in lower case."""


class Config(Section):
    """One experiment."""

    name: FileName
    """Name of the run; it is kept in `runs/NAME`. Left out: the name of the YAML file."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Everything random follows from it."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; `auto` takes the best that is there."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of training; `auto` takes the fastest that is safe on the device."""
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
