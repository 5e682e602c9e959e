"""GPUs by name: aliases, node labels, slices, shares."""

from __future__ import annotations

import pytest

from sojourn.catalogue import cold_start, gpus, models
from sojourn.errors import GpuUnknown
from sojourn.units import GIB


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100-80GB", "A100-80GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("nvidia-a100-80gb", "A100-80GB"),
        ("nvidia-tesla-a100", "A100-40GB"),
        ("H100", "H100"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-A10G", "A10G"),
        ("rtx 4090", "RTX4090"),
        ("RTX-4090", "RTX4090"),
        ("NVIDIA-GeForce-RTX-4090", "RTX4090"),
        ("Tesla-T4", "T4"),
        ("AMD_Instinct_MI300X", "MI300X"),
    ],
)
def test_a_card_is_found_by_name_alias_or_node_label(written: str, name: str) -> None:
    assert gpus.find(written).name == name


def test_memory_is_what_the_engine_sees_not_what_is_marketed() -> None:
    """Marketed GB read as GiB over-predicts KV by 47 % in the median (published logs)."""
    assert gpus.find("A100-80GB").memory_bytes / GIB == pytest.approx(79.15, abs=0.01)
    assert gpus.find("L4").memory_bytes / GIB < 24


def test_a_mig_slice_has_its_own_memory_and_resource() -> None:
    piece = gpus.find("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
    assert piece.name == "A100-80GB-MIG-1g.10gb"
    assert piece.resource == "nvidia.com/mig-1g.10gb"
    assert 9 < piece.memory_bytes / GIB < 10
    whole = gpus.find("A100-80GB")
    assert piece.dense_fp16_flop_per_s is not None
    assert whole.dense_fp16_flop_per_s is not None
    assert piece.dense_fp16_flop_per_s == pytest.approx(whole.dense_fp16_flop_per_s / 7)


def test_a_time_sliced_share_keeps_the_whole_memory_and_says_so() -> None:
    shared = gpus.find("NVIDIA-L4-SHARED")
    assert shared.shared
    assert shared.memory_bytes == gpus.find("L4").memory_bytes
    assert gpus.find("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED").shared


def test_a_name_two_cards_share_is_unknown_and_names_both() -> None:
    with pytest.raises(GpuUnknown) as raised:
        gpus.find("A100")
    assert {"A100-40GB", "A100-80GB"} <= set(raised.value.nearest)
    assert "spec.gpu.memory" in str(raised.value)


def test_an_unknown_slice_names_the_cards_own() -> None:
    with pytest.raises(GpuUnknown) as raised:
        gpus.find("A100-80GB-MIG-9g.90gb")
    assert all(name.startswith("A100-80GB-MIG-") for name in raised.value.nearest)


def test_every_card_has_a_source_and_sane_figures() -> None:
    for card in gpus.every():
        assert card.source
        assert 10 * GIB < card.memory_bytes < 400 * GIB
        assert card.bandwidth_bytes_per_s is not None
        assert 2e11 < card.bandwidth_bytes_per_s < 2e13
        for profile in gpus.mig_profiles(card.name):
            assert gpus.find(f"{card.name}-MIG-{profile}").memory_bytes <= card.memory_bytes


def test_priced_cards_say_where_the_price_is_from() -> None:
    card = gpus.find("A10G")
    assert card.price_per_hour_usd == pytest.approx(1.006)
    assert "price:" in card.source


def test_search_lists_by_word() -> None:
    assert {card.name for card in gpus.search("a100")} >= {"A100-40GB", "A100-80GB"}


def test_larger_models_start_slower_and_say_from_where() -> None:
    small, _ = cold_start.cold_start_s(models.find("Llama-3.1-8B"))
    large, source = cold_start.cold_start_s(models.find("deepseek-ai/DeepSeek-V3"))
    assert 0 < small < large
    assert "24 published start-ups" in source
