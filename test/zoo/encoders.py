"""Encoders and encoder-decoders over text and sound, of transformers."""
import numpy as np
import transformers as tr

from case import CE, MSE, Case, Pick, classes, classes_unpadded, floats, next_tokens, normal, tokens
from lm import config

V, T = 61, 12
BERT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, type_vocab_size=2, use_cache="-", attention_dropout="-",
            bos_token_id="-", eos_token_id="-")
IDS = ["input_ids", "attention_mask"]


def encoder(name, conf, model, pick="logits", labels=classes(V, T), loss=CE, **more):
    build = lambda: Pick(getattr(tr, model)(conf()), IDS, pick)
    return Case(name, build, tokens(V, T, "right"), loss, labels, **more)


# BART's final_logits_bias is a buffer, Marian's and Pegasus' positions are frozen: TorchScript tells neither.
BART_TRAINS = {"trainable": ["model.*", "onnx::MatMul_*"]}
MARIAN_TRAINS = {"trainable": ["model.model.encoder.layer*", "model.model.decoder.layer*", "model.model.shared.*", "onnx::MatMul_*"]}


def seq2seq(name, conf, model, **more):
    def inputs(rng, n):
        a = tokens(V, T, "right")(rng, n)
        return {**a, "decoder_input_ids": rng.integers(3, V, (n, 8))}

    build = lambda: Pick(getattr(tr, model)(conf()), IDS + ["decoder_input_ids"], "logits")
    return Case(name, build, inputs, CE, classes(V, 8), **more)


BART = dict(hidden_size="-", intermediate_size="-", num_hidden_layers="-", num_attention_heads="-", d_model=32, encoder_layers=2,
            decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
            dropout=0.0, activation_dropout=0.0, decoder_start_token_id=2)
WAV = dict(max_position_embeddings="-", use_cache="-", vocab_size=20, conv_dim=(16, 16), conv_stride=(4, 2), conv_kernel=(8, 3),
           num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, hidden_dropout=0.0,
           feat_proj_dropout=0.0, layerdrop=0.0, final_dropout=0.0, activation_dropout=0.0, apply_spec_augment=False,
           mask_time_prob=0.0, pad_token_id=0)


def whisper():
    c = config("WhisperConfig", **BART, max_position_embeddings="-", num_mel_bins=8, max_source_positions=8,
               max_target_positions=16)()
    return Pick(tr.WhisperForConditionalGeneration(c), ["input_features", "decoder_input_ids", "decoder_attention_mask"], "logits")


def whisper_inputs(rng, n):
    return {"input_features": rng.standard_normal((n, 8, 16)).astype(np.float32), "decoder_input_ids": rng.integers(3, V, (n, 8)),
            "decoder_attention_mask": np.ones((n, 8), np.int64)}


def series(kind, model, **more):
    return lambda: Pick(getattr(tr, model)(getattr(tr, kind)(**more)), ["past_values"], "prediction_outputs")


CASES = [
    encoder("albert_fresh", config("AlbertConfig", **BERT, embedding_size=16, num_hidden_layers=3), "AlbertForMaskedLM", perturb=False),
    encoder("albert_groups", config("AlbertConfig", **BERT, embedding_size=16, num_hidden_layers=4, num_hidden_groups=2,
                                    inner_group_num=2), "AlbertForMaskedLM"),
    encoder("modernbert", config("ModernBertConfig", use_cache="-", num_hidden_layers=3, global_attn_every_n_layers=2,
                                 local_attention=4, cls_token_id=1, sep_token_id=2), "ModernBertForMaskedLM",
            labels=classes_unpadded(V, T), optimize=False),  # dynamo's file differs at padding
    encoder("roberta_fresh", config("RobertaConfig", **BERT), "RobertaForMaskedLM", perturb=False),
    encoder("roberta_padding", config("RobertaConfig", **BERT), "RobertaForMaskedLM", padding=True,
            known={e: "ONNX has no padding_idx" for e in ("dynamo", "torchscript")}),
    encoder("distilbert", config("DistilBertConfig", **{**BERT, "type_vocab_size": "-"}, hidden_size="-", intermediate_size="-",
                                 num_hidden_layers="-", num_attention_heads="-", dim=32, hidden_dim=64, n_layers=2, n_heads=4,
                                 dropout=0.0), "DistilBertForSequenceClassification", labels=classes(2)),
    encoder("electra", config("ElectraConfig", **BERT, embedding_size=16), "ElectraForTokenClassification", labels=classes(2, T)),
    encoder("deberta_v2", config("DebertaV2Config", **{**BERT, "type_vocab_size": 0}, relative_attention=True, pos_att_type=["c2p", "p2c"],
                                 position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True), "DebertaV2ForMaskedLM"),
    encoder("mpnet", config("MPNetConfig", **{**BERT, "type_vocab_size": "-"}), "MPNetForMaskedLM", optimize=False),
    encoder("esm", config("EsmConfig", **{**BERT, "type_vocab_size": "-"}, position_embedding_type="rotary", mask_token_id=3),
            "EsmForMaskedLM"),
    encoder("squeezebert", config("SqueezeBertConfig", **BERT, embedding_size=32), "SqueezeBertForMaskedLM"),
    encoder("mobilebert", config("MobileBertConfig", **BERT, embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2,
                                 true_hidden_size=16), "MobileBertForMaskedLM", optimize=False),
    encoder("xlnet", config("XLNetConfig", hidden_size="-", intermediate_size="-", num_hidden_layers="-", num_attention_heads="-",
                            max_position_embeddings="-", use_cache="-", attention_dropout="-", d_model=32, n_layer=2, n_head=4,
                            d_inner=64, dropout=0.0), "XLNetLMHeadModel", fixed=True),
    seq2seq("t5", config("T5Config", max_position_embeddings="-", attention_dropout="-", intermediate_size="-", hidden_size="-",
                         num_hidden_layers="-", num_attention_heads="-", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                         relative_attention_num_buckets=8, dropout_rate=0.0, decoder_start_token_id=1,
                         attn="eager"), "T5ForConditionalGeneration", optimize=False),
    seq2seq("bart", config("BartConfig", **BART), "BartForConditionalGeneration", torchscript=BART_TRAINS),
    seq2seq("marian_fresh", config("MarianConfig", **BART), "MarianMTModel", perturb=False, torchscript=MARIAN_TRAINS),
    seq2seq("pegasus", config("PegasusConfig", **BART), "PegasusForConditionalGeneration", torchscript=MARIAN_TRAINS),
    Case("whisper", whisper, whisper_inputs, CE, classes(V, 8)),
    Case("wav2vec2", lambda: Pick(tr.Wav2Vec2ForCTC(config("Wav2Vec2Config", **WAV)()), ["input_values"], "logits"),
         floats(128, name="input_values"), CE, classes(20, 15), optimize=False),
    Case("hubert", lambda: Pick(tr.HubertForSequenceClassification(config("HubertConfig", **WAV, feat_extract_norm="layer", num_labels=5,
                                                                           classifier_proj_size=16)()), ["input_values"], "logits"),
         floats(128, name="input_values"), CE, classes(5), optimize=False),
    Case("patchtst", series("PatchTSTConfig", "PatchTSTForPrediction", num_input_channels=2, context_length=16, patch_length=4,
                            patch_stride=4, d_model=16, num_attention_heads=2, num_hidden_layers=2, ffn_dim=32, prediction_length=4,
                            attention_dropout=0.0, head_dropout=0.0, loss="mse", scaling="std", norm_type="layernorm"),
         floats(16, 2, name="past_values"), MSE, normal(4, 2),
         trainable=["*embedder*", "*layers*", "*projection*"], known={"torchscript": "a broken file (an Add does not fit)"}),
]
