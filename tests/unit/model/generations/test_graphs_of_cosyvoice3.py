"""The exported graphs of CosyVoice3 against the torch path and the recorded calls, on the CPU."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from cosyserve.engines.engine_cache import COMPONENTS, FLOW_COMPONENTS
from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.model_directory import ModelDirectory
from services.token2wav.engines import shapes
from services.token2wav.engines.flow import EngineFlow
from services.token2wav.engines.onnx_runtime import OnnxEngine
from services.token2wav.engines.slots import Slots
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.inputs.model_files import read_tensors
from tests.stacks.up_process import TINY3
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.graph_comparison import compare, first_difference, tolerance
from tools.model.export import estimator_weights, flow_weights, graphs
from tools.model.graphs import networks
from tools.model.graphs.dit_graph import DitGraph
from tools.model.graphs.execute import by_onnx_runtime, on_cpu
from tools.model.graphs.graph import Precision, write
from tools.model.graphs.velocity_graph import read_published

CPU = torch.device("cpu")


@cache
def exported() -> dict[str, onnx.ModelProto]:
    return graphs(TINY3, Precision.FP32)


@cache
def reference() -> Reference:
    return Reference(TINY3)


@cache
def cases() -> list[Case]:
    return list(reference().cases())


def test_every_case_in_float32() -> None:
    assert tuple(exported()) == COMPONENTS
    report, lines = compare(exported(), cases(), reference(), on_cpu(Precision.FP32), Precision.FP32)
    assert (report.ok, lines) == (True, []), report.as_table()
    assert max(row.error for row in report.rows if not row.array.startswith("pitch")) < 2e-5
    assert {row.array.split(":")[0] for row in report.rows} == set(COMPONENTS)
    assert sum("streaming" in row.array for row in report.rows) == 9


def test_what_an_operator_takes_as_a_scalar_is_one() -> None:
    """ONNX Runtime takes a vector of one element as well, TensorRT does not."""
    graph = onnx.shape_inference.infer_shapes(exported()["estimator"], strict_mode=True).graph
    ranks = {each.name: len(each.dims) for each in graph.initializer}
    ranks |= {each.name: len(each.type.tensor_type.shape.dim) for each in graph.value_info}
    (places,) = [node for node in graph.node if node.op_type == "Range"]
    assert [ranks[name] for name in places.input] == [0, 0, 0]
    numbers = [ranks[name] for name in ranks if name.startswith("number.")]
    assert numbers
    assert set(numbers) == {0}


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16, Precision.FP8])
def test_narrow_products_stay_near(precision: Precision) -> None:
    (case,) = [case for case in cases() if case.name == "estimator.npz/out_streaming"]
    execute = on_cpu(precision)["estimator"](graphs(TINY3, precision)["estimator"])
    error = np.abs(execute(case.inputs)["estimator_out"] - case.wanted).max()
    # Not equal either: the narrow type is really there.
    assert 1e-4 < error <= tolerance("estimator", precision) * np.abs(case.wanted).max()


@pytest.mark.parametrize(
    ("component", "weight", "layer"),
    [
        ("estimator", "transformer_blocks.1.ff.ff.2.weight", "transformer_blocks.1"),
        ("estimator", "transformer_blocks.2.attn.to_qkv.weight", "transformer_blocks.2"),
        ("estimator", "time_embed.time_mlp.0.bias", "time_embed"),
        ("encoder", "pre_lookahead_layer.conv2.weight", "pre_lookahead"),
        ("filter", "conv_pre.weight", "conv_pre"),
        ("filter", "source_resblocks.1.convs2.0.weight", "source_resblocks.1"),
        ("filter", "resblocks.4.convs1.1.weight", "resblocks.4"),
        ("filter", "ups.2.weight", "resblocks.6"),
        ("filter", "conv_post.bias", "conv_post"),
        ("pitch", "f0_predictor.condnet.4.weight", "f0_predictor.condnet.4"),
    ],
)
def test_a_wrong_weight_is_named_by_its_layer(component: str, weight: str, layer: str) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(exported()[component])
    (tensor,) = [tensor for tensor in wrong.graph.initializer if tensor.name == weight]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(0.05), weight))
    streaming = component in FLOW_COMPONENTS
    case = next(case for case in cases() if case.component == component and streaming == ("streaming" in case.name))
    difference = first_difference(wrong, reference(), case, by_onnx_runtime, tolerance(component, Precision.FP32))
    assert difference.startswith(f"layer {layer} is the first that differs, by ")


def test_the_published_form_is_taken(tmp_path: Path) -> None:
    """Fixed batch of 2, no attention mask; inputs as CosyVoice2's."""
    weights, config = flow_weights(TINY3)
    write(DitGraph(estimator_weights(weights), config, masked=False).model({}), tmp_path / "theirs.onnx")
    models = exported() | {"estimator": read_published(tmp_path / "theirs.onnx")}
    given = [case for case in reference().cases(masked=False) if case.component == "estimator"]
    report, _ = compare(models, given, reference(), on_cpu(Precision.FP32), Precision.FP32)
    assert report.ok, report.as_table()


def test_a_network_without_graphs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(COSYVOICE3, flow_network="made-up", vocoder_network="made-up")
    for module in (networks, shapes):
        monkeypatch.setattr(module, "token2wav_networks", lambda directory: unknown)
    with pytest.raises(ModelError, match="flow's network 'made-up' has no graphs; there are conformer-unet, dit"):
        networks.flow_graphs(ModelDirectory(TINY3))
    with pytest.raises(ModelError, match="vocoder's network 'made-up' has no graphs; there are hift, causal-hift"):
        networks.vocoder_graphs(ModelDirectory(TINY3))
    with pytest.raises(ModelError, match="engines run the vocoder networks hift, causal-hift; this one is made-up"):
        shapes.frames_around(ModelDirectory(TINY3))


@pytest.fixture(scope="module")
def engine_flow(tmp_path_factory: pytest.TempPathFactory) -> EngineFlow:
    folder, engines = tmp_path_factory.mktemp("graphs"), {}
    for component, model in exported().items():
        write(model, folder / f"{component}.onnx")
        engines[component] = OnnxEngine(component, folder / f"{component}.onnx", CPU)
    directory = ModelDirectory(TINY3)
    speaker = Linear.of(Tensors(read_tensors(directory.file("flow.pt"))).within("spk_embed_affine_layer"))
    config = DitConfig.read(directory)
    return EngineFlow(config, engines["encoder"], engines["estimator"], speaker, Slots(CPU, 1), CPU, 4)


def test_every_call_of_the_recorded_stream(engine_flow: EngineFlow) -> None:
    """Lengths are padded to whole seconds, which changes nothing."""
    with np.load(TINY3 / "flow_mel.npz") as file:
        recorded = {name: file[name] for name in file.files}
    spoken = torch.from_numpy(recorded["token"][0]).long()
    voice = VoicePrompt(
        torch.from_numpy(recorded["prompt_token"][0]).long(),
        *(torch.from_numpy(recorded[name][0]) for name in ("prompt_feat", "spk_embedding")),
    )
    calls = [(90, False, True, "mel_offline"), (90, True, True, "mel_streaming_finalize")]
    calls += [(33, True, False, "mel_chunk0_full"), (83, True, False, "mel_chunk1_full")]
    for tokens, streaming, final, wanted in calls:
        mel = engine_flow.prefix(voice, spoken[:tokens], streaming=streaming, final=final)
        assert float(np.abs(mel.numpy() - recorded[wanted][0]).max()) < 5e-5
