"""Drafted blocks, boundary posteriors, token trees and the walk, in plain Python numbers. Needs no torch."""
